#include "lab/host/find_program.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cluster/environment.h"

namespace psring {

std::optional<std::string> FindProgram(const std::string& name) {
  const Variables variables = ReadVariables();
  const auto path = variables.find("PATH");
  const std::string folders =
      absl::StrCat(path == variables.end() ? "" : path->second,
                   ":/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:"
                   "/sbin");
  for (absl::string_view folder : absl::StrSplit(folders, ':')) {
    if (folder.empty()) continue;
    const std::string program = absl::StrCat(folder, "/", name);
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

}  // namespace psring
