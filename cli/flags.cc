#include "cli/flags.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
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

std::optional<int> ParseFlags(CLI::App& app, const Args& args) {
  Args reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::Error& error) {
    return UsageError(app, error.what());
  }
}

int UsageError(const CLI::App& app, const std::string& what) {
  std::string line = what;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::cerr << app.get_name() << ": " << line << " (see " << app.get_name()
            << " --help)" << std::endl;
  return kExitUsage;
}

Binaries::Binaries()
    : ps(BinaryRoot() / "ps" / "ps"),
      worker(BinaryRoot() / "worker" / "worker"),
      rank(BinaryRoot() / "bench" / "rank") {}

void Binaries::AddFlags(CLI::App& app) {
  app.add_option("--ps-binary", ps)->group("")->take_last();
  app.add_option("--worker-binary", worker)->group("")->take_last();
  app.add_option("--rank-binary", rank)->group("")->take_last();
}

}  // namespace psring
