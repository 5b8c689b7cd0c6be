// Runs a fuzz target on its seeds and on every file of a folder, in order.
//
// usage: NAME_test FOLDER
//
// While an input of n bytes runs, operator new gives the target at most
// 32 MiB + 256 n at once.
#include <dirent.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr int64_t kBaseBytes = 32 << 20;
constexpr int64_t kBytesPerInputByte = 256;

std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};

void* Take(size_t size) noexcept {
  void* const memory = malloc(size);
  if (memory == nullptr) return nullptr;
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(memory));
  if (now > most) most = now;
  return memory;
}

void Give(void* memory) noexcept {
  if (memory == nullptr) return;
  held -= static_cast<int64_t>(malloc_usable_size(memory));
  free(memory);
}

}  // namespace

void* operator new(size_t size) {
  void* const memory = Take(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Take(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Take(size);
}
void operator delete(void* memory) noexcept { Give(memory); }
void operator delete[](void* memory) noexcept { Give(memory); }
void operator delete(void* memory, size_t) noexcept { Give(memory); }
void operator delete[](void* memory, size_t) noexcept { Give(memory); }

namespace psring::fuzz {
namespace {

// False where it took too much memory.
bool Run(const std::string& name, const std::string& input) {
  // Should it end the program, this says what on.
  fprintf(stderr, "%s\n", name.c_str());
  // A copy of exactly its size: what reads behind it is seen.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  const int64_t before = held;
  most = before;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  const int64_t limit =
      kBaseBytes + kBytesPerInputByte * static_cast<int64_t>(input.size());
  if (most - before <= limit) return true;
  fprintf(stderr, "%s: %zu bytes made the target hold %lld, more than %lld\n",
          name.c_str(), input.size(), static_cast<long long>(most - before),
          static_cast<long long>(limit));
  return false;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Require(file.good(), absl::StrCat("can read ", path));
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

// Sorted. None where there is no such folder: some targets have but seeds.
std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return names;
  while (const dirent* entry = readdir(listing)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

int Replay(const std::string& folder) {
  int failed = 0;
  const std::vector<std::string> seeds = Seeds();
  Require(!seeds.empty(), "a target has seeds");
  for (size_t i = 0; i < seeds.size(); ++i) {
    failed += Run(absl::StrCat("seed ", i), seeds[i]) ? 0 : 1;
  }
  const std::vector<std::string> files = FilesIn(folder);
  for (const std::string& file : files) {
    failed += Run(file, ReadAll(absl::StrCat(folder, "/", file))) ? 0 : 1;
  }
  fprintf(stderr, "%zu seeds and %zu files, %d of them failed\n", seeds.size(),
          files.size(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace psring::fuzz

int main(int argc, char** argv) {
  if (argc == 2) return psring::fuzz::Replay(argv[1]);
  fprintf(stderr, "usage: NAME_test FOLDER\n");
  return 2;
}
