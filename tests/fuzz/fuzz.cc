#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace psring::fuzz {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    const bool in_memory = access("/dev/shm", W_OK) == 0;
    std::string name =
        (in_memory ? "/dev/shm" : fs::temp_directory_path().string()) +
        "/psring-fuzz-XXXXXX";
    Require(mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void Require(bool true_so_far, absl::string_view what) {
  if (true_so_far) return;
  fprintf(stderr, "not true: %.*s\n", static_cast<int>(what.size()),
          what.data());
  abort();
}

void RequireReason(const absl::Status& status) {
  Require(!status.ok() && !status.message().empty(), "an error says why");
}

uint64_t Bytes::Number(int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes && !rest_.empty(); ++i) {
    number |= uint64_t{static_cast<unsigned char>(rest_[0])} << (8 * i);
    rest_.remove_prefix(1);
  }
  return number;
}

int64_t Bytes::Integer() {
  const uint8_t kind = Byte();
  if (kind < 200) return static_cast<int64_t>(kind) - 20;
  if (kind < 228) return static_cast<int64_t>(Number(4)) - (int64_t{1} << 31);
  return static_cast<int64_t>(Number(8));
}

double Bytes::Double() {
  const uint64_t bits = Number(8);
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string Bytes::Text() {
  const size_t wanted = static_cast<size_t>(Number(2));
  const size_t size = std::min(wanted, rest_.size());
  std::string text(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return text;
}

std::string Bytes::Line() {
  const size_t end = std::min(rest_.find('\n'), rest_.size());
  std::string line(rest_.substr(0, end));
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  return line;
}

std::string Bytes::Rest() {
  std::string text(rest_);
  rest_ = {};
  return text;
}

Input& Input::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    bytes_ += static_cast<char>(value >> (8 * i));
  }
  return *this;
}

Input& Input::Integer(int64_t value) {
  if (value >= -20 && value < 180) return Byte(static_cast<int>(value + 20));
  return Byte(255).Number(static_cast<uint64_t>(value), 8);
}

Input& Input::Double(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return Number(bits, 8);
}

Input& Input::Text(absl::string_view text) {
  Number(text.size(), 2);
  return Rest(text);
}

Input& Input::Rest(absl::string_view text) {
  absl::StrAppend(&bytes_, text);
  return *this;
}

const std::string& ScratchFolder() {
  static Folder folder;
  return folder.path();
}

std::string WriteScratch(const std::string& name, absl::string_view bytes) {
  std::string path = absl::StrCat(ScratchFolder(), "/", name);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const bool written = fd >= 0 && write(fd, bytes.data(), bytes.size()) ==
                                      static_cast<ssize_t>(bytes.size());
  if (fd >= 0) close(fd);
  Require(written, "a scratch file can be written");
  return path;
}

std::string ReadScratch(const std::string& name) {
  std::ifstream file(absl::StrCat(ScratchFolder(), "/", name),
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

}  // namespace psring::fuzz

// libFuzzer calls it first: a search, which has folders for what it finds, gets
// one more, of seeds.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using psring::fuzz::Folder;
  namespace fs = std::filesystem;
  static std::vector<char*> args(*argv, *argv + *argc);
  const bool searches = std::any_of(args.begin() + 1, args.end(), [](char* a) {
    return a[0] != '-' && fs::is_directory(a);
  });
  if (!searches) return 0;
  static const Folder folder;
  static std::string path = folder.path();
  const std::vector<std::string> seeds = psring::fuzz::Seeds();
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream file(absl::StrCat(path, "/seed-", i), std::ios::binary);
    file << seeds[i];
    psring::fuzz::Require(file.good(), "a seed can be written");
  }
  args.push_back(path.data());
  *argc = static_cast<int>(args.size());
  args.push_back(nullptr);
  *argv = args.data();
  return 0;
}
