// What a fuzz target is made of. NAME_fuzz.cc defines the two functions below;
// fuzz_test (fuzz_test.bzl) makes two programs of it: a test that runs the
// target on its seeds and on what lies in corpus/NAME, and, with clang,
// libFuzzer, which searches for more.
//
// A target does not only survive: it says by Require what must be true. Memory
// is bounded by both programs: in the test by the size of the input
// (replay_main.cc).
#ifndef PSRING_TESTS_FUZZ_FUZZ_H_
#define PSRING_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// One input; 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace psring::fuzz {

// Real inputs, which the product's own writers have written: where the search
// begins.
std::vector<std::string> Seeds();

// Ends the program, which is a finding, where `true_so_far` is false.
void Require(bool true_so_far, absl::string_view what);

// Whoever is refused is told why.
void RequireReason(const absl::Status& status);

// Takes an input apart. Behind its end there are zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  uint8_t Byte() { return static_cast<uint8_t>(Number(1)); }
  bool Flag() { return (Byte() & 1) != 0; }
  int Below(int n) { return Byte() % n; }
  // Of `bytes` bytes, little-endian.
  uint64_t Number(int bytes);
  // Small and huge ones, both signs.
  int64_t Integer();
  double Double();
  // Its length comes first, as two bytes.
  std::string Text();
  // Up to the next newline: its length may change, and what follows stays.
  std::string Line();
  std::string Rest();

 private:
  absl::string_view rest_;
};

// Bytes, written.
class Input {
 public:
  Input& Byte(int value) { return Number(static_cast<uint64_t>(value), 1); }
  Input& Number(uint64_t value, int bytes);
  Input& Integer(int64_t value);
  Input& Double(double value);
  Input& Text(absl::string_view text);
  Input& Rest(absl::string_view text);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A folder of this process's own, in memory where there is such a file system;
// gone at the end.
const std::string& ScratchFolder();

// Writes ScratchFolder()/name and returns its path.
std::string WriteScratch(const std::string& name, absl::string_view bytes);
std::string ReadScratch(const std::string& name);

}  // namespace psring::fuzz

#endif  // PSRING_TESTS_FUZZ_FUZZ_H_
