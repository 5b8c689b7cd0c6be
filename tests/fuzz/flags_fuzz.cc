// common/process/command_line.h: a command line of one argument a line.
#include <iostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/process/command_line.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

// Help and errors go nowhere.
class Silence : public std::streambuf {
 public:
  Silence() : out_(std::cout.rdbuf(this)), err_(std::cerr.rdbuf(this)) {}
  // The streams outlive it, and are flushed at the end.
  ~Silence() override {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }

 protected:
  int overflow(int c) override { return c == EOF ? 0 : c; }

 private:
  std::streambuf* const out_;
  std::streambuf* const err_;
};

void Parse(const std::vector<std::string>& args) {
  CommandLine line("what it is", "psring fuzz");
  std::string text = "initial", mode = "ps", checked;
  int count = 1;
  int64_t large = 0;
  uint64_t unsigned_number = 0;
  double fraction = 0.5;
  std::vector<std::string> each;
  bool flag = false;
  line.Add("--text", text, "a text");
  line.Add("--mode", mode, "a mode").OneOf({"ps", "ring"});
  line.Add("--checked", checked, "checked").Check([](const std::string& s) {
    return s == "bad" ? "it is bad" : "";
  });
  line.Add("--count", count, "a number").Range(1, 4096);
  line.Add("--large", large, "a number").Range(int64_t{0}, INT64_MAX);
  line.Add("--unsigned", unsigned_number, "a number");
  line.Add("--fraction", fraction, "a fraction").Range(0.0, 1.0);
  line.Add("--each", each, "texts").Repeatable();
  line.Add("--flag", flag, "yes or no");
  const std::optional<int> code = line.Parse(args);
  if (code) {
    Require(*code == 0 || *code == kExitUsage, "help, or an error of usage");
    return;
  }
  Require(count >= 1 && count <= 4096, "numbers are within their bounds");
  Require(large >= 0, "large ones too");
  Require(fraction >= 0 && fraction <= 1, "fractions too");
  Require(mode == "ps" || mode == "ring", "words are those that are allowed");
  Require(checked != "bad", "checks are made");
  Require(line.Has("--each") == !each.empty(), "what is given is there");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      "--text=hello\n--mode\nring\n--count=7\n--large=123456789012\n--flag",
      "--each=one\n--each\ntwo\n--fraction=0.25\n--unsigned="
      "18446744073709551615",
      "--help",
      "--count=0",
      "--fraction=nan\n--checked=bad",
      "positional\n--\n--flag=false",
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static psring::fuzz::Silence silence;
  psring::fuzz::Bytes input(data, size);
  const std::string text = input.Rest();
  // No argument of a process has a zero within.
  if (absl::StrContains(text, '\0')) return 0;
  psring::fuzz::Parse(absl::StrSplit(text, '\n'));
  return 0;
}
