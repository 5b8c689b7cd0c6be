// Command lines, as lists of texts: what the laboratory hands to the processes
// that it starts, and where their programs are.
#ifndef PSRING_LAB_HOST_ARGUMENTS_H_
#define PSRING_LAB_HOST_ARGUMENTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace psring {

using Args = std::vector<std::string>;

// Whether `arg` gives the flag `name`, by itself ("--seed") or with a value
// ("--seed=3").
bool IsFlag(absl::string_view arg, absl::string_view name);
// Whether any of them does.
bool HasFlag(const Args& args, absl::string_view name);

// What gives the flag `name` there, once: "--seed=3", or "--seed" and "3".
Args ArgsOf(const Args& args, absl::string_view name);
// Its value in what ArgsOf returns; empty: there is none.
std::string ValueOf(const Args& args_of_flag);

// "--seed" of "--seed=3" and of itself.
std::string FlagName(const std::string& arg);

// Where the processes' programs are: beside the one that runs.
struct Binaries {
  Binaries();

  std::string ps;
  std::string worker;
  std::string rank;  // of `psring bench`
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_ARGUMENTS_H_
