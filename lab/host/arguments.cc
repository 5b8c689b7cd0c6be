#include "lab/host/arguments.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/strip.h"

namespace psring {
namespace {

// Folder of the folder that this program is in: bazel-bin of bazel-bin/cli.
std::filesystem::path BinaryRoot() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path().parent_path();
}

}  // namespace

bool IsFlag(absl::string_view arg, absl::string_view name) {
  return absl::ConsumePrefix(&arg, name) && (arg.empty() || arg[0] == '=');
}

bool HasFlag(const Args& args, absl::string_view name) {
  return std::any_of(args.begin(), args.end(),
                     [&](const std::string& arg) { return IsFlag(arg, name); });
}

Args ArgsOf(const Args& args, absl::string_view name) {
  const auto found =
      std::find_if(args.begin(), args.end(),
                   [&](const std::string& arg) { return IsFlag(arg, name); });
  if (found == args.end()) return {};
  if (*found != name || found + 1 == args.end()) return {*found};
  return {*found, *(found + 1)};
}

std::string ValueOf(const Args& args_of_flag) {
  if (args_of_flag.empty()) return "";
  const std::string& last = args_of_flag.back();
  return args_of_flag.size() == 2 ? last : last.substr(last.find('=') + 1);
}

std::string FlagName(const std::string& arg) {
  return arg.substr(0, arg.find('='));
}

Binaries::Binaries()
    : ps(BinaryRoot() / "ps" / "ps"),
      worker(BinaryRoot() / "worker" / "worker"),
      rank(BinaryRoot() / "lab" / "bench" / "rank") {}

}  // namespace psring
