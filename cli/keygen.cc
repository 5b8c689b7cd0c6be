#include "cli/keygen.h"

#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"

namespace psring {
namespace {

constexpr char kName[] = "psring keygen";

constexpr char kDescription[] =
    "Makes a key, 32 random bytes in a file that only you can read. Processes "
    "of one job need the same key, so copy it to every host that does not "
    "share your home. Without a key none of them listens where other hosts "
    "reach it.";

constexpr char kExample[] =
    "Example: the same key on this host and on hostB\n"
    "  psring keygen\n"
    "  psring keygen --print | ssh hostB psring keygen --stdin";

struct KeygenFlags {
  std::string key_file;
  bool print = false;
  bool from_stdin = false;
  bool force = false;
};

absl::StatusOr<Secret> SecretFor(const KeygenFlags& flags) {
  if (!flags.from_stdin) return Secret::Random();
  char line[128] = "";  // a key and spaces around it
  std::cin.getline(line, sizeof(line));
  auto secret = Secret::FromText(line);
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat("stdin: ", secret.status().message()));
}

absl::Status Print(const std::string& path) {
  const auto secret = ReadKeyFile(path);
  if (!secret.ok()) return secret.status();
  std::cout << secret->ToText() << std::endl;
  if (std::cout) return absl::OkStatus();
  return absl::DataLossError("cannot write the key to standard output");
}

absl::Status Write(const KeygenFlags& flags, const std::string& path) {
  const auto secret = SecretFor(flags);
  if (!secret.ok()) return secret.status();
  absl::Status s = WriteKeyFile(path, *secret, flags.force);
  if (absl::IsAlreadyExists(s) && flags.from_stdin) {
    const auto there = ReadKeyFile(path);
    if (there.ok() && there->ToText() == secret->ToText()) {
      std::cout << path << " is that key already" << std::endl;
      return absl::OkStatus();
    }
  }
  std::error_code error;
  if (!s.ok() && std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a folder: name the key's file"));
  }
  if (!s.ok()) return s;
  std::cout << "wrote " << path << std::endl;
  return absl::OkStatus();
}

}  // namespace

int Keygen(const Args& args) {
  CommandLine line(kDescription, kName);
  KeygenFlags flags;
  line.Add("--key-file", flags.key_file,
           "The key's file; default: $PSRING_KEY_FILE, else "
           "$XDG_CONFIG_HOME/psring/key, else ~/.config/psring/key");
  line.Add("--print", flags.print, "Print the key that is there");
  line.Add("--stdin", flags.from_stdin,
           "Take the key from stdin, as --print prints it");
  line.Add("--force", flags.force, "Replace a key that is there");
  line.Footer(kExample);
  if (auto code = line.Parse(args)) return *code;
  if (flags.print && (flags.from_stdin || flags.force)) {
    return line.UsageError(
        absl::StrCat("--print writes no key: not with ",
                     flags.from_stdin ? "--stdin" : "--force"));
  }
  const Variables variables = ReadVariables();
  std::string path = flags.key_file;
  if (const auto it = variables.find("PSRING_KEY_FILE");
      path.empty() && it != variables.end()) {
    path = it->second;
  }
  if (path.empty()) path = DefaultKeyPath(variables);
  if (path.empty()) {
    return line.UsageError(
        "--key-file is missing: neither HOME nor XDG_CONFIG_HOME is set");
  }
  const absl::Status status = flags.print ? Print(path) : Write(flags, path);
  return status.ok() ? 0 : Fail(kName, status);
}

}  // namespace psring
