#include "cli/flags.h"

#include <algorithm>
#include <iostream>

namespace psring {

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

void AddBinaryFlags(CLI::App& app, Binaries& binaries) {
  app.add_option("--ps-binary", binaries.ps)->group("")->take_last();
  app.add_option("--worker-binary", binaries.worker)->group("")->take_last();
  app.add_option("--rank-binary", binaries.rank)->group("")->take_last();
}

}  // namespace psring
