#include "cli/script_identity.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/cluster/environment.h"
#include "lab/study/weights.h"

namespace psring {
namespace {

// Those of docs/python.md that change a training and that no axis sets.
constexpr const char* kVariables[] = {"PSRING_UPDATE", "PSRING_BUCKET_MB",
                                      "PSRING_GPU", "PSRING_OWN_SERVERS"};

// A file, but no program such as an interpreter.
bool IsScriptFile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return absl::string_view(start, sizeof(start)) !=
         "\x7f"
         "ELF";
}

}  // namespace

std::map<std::string, std::string> DescribeScript(const Args& command) {
  std::map<std::string, std::string> described;
  const auto script = absl::c_find_if(command, IsScriptFile);
  const std::string& file = script == command.end() ? command[0] : *script;
  if (const auto crc = Crc32OfFile(file); crc.ok()) {
    described[absl::StrCat("the file ", file)] =
        absl::StrFormat("CRC-32 %08x", *crc);
  }
  const Variables variables = ReadVariables();
  for (const char* name : kVariables) {
    const auto found = variables.find(name);
    if (found != variables.end()) described[name] = found->second;
  }
  return described;
}

}  // namespace psring
