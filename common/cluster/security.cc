#include "common/cluster/security.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace psring {
namespace {

constexpr char kFile[] = "PSRING_KEY_FILE";
constexpr char kDescriptor[] = "PSRING_KEY_FD";
constexpr char kInsecure[] = "PSRING_INSECURE";
constexpr char kRequire[] = "PSRING_REQUIRE_ENCRYPTION";

// Empty: not set, or set to nothing.
std::string Text(const Variables& variables, const std::string& name) {
  const auto it = variables.find(name);
  return it == variables.end() ? "" : it->second;
}

absl::StatusOr<bool> Switch(const Variables& variables, const char* name) {
  const std::string text = Text(variables, name);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  return absl::InvalidArgumentError(absl::StrCat(
      "the environment variable ", name, "=", text, " is not 0 or 1"));
}

// A key that cannot be seen (another user's folder, a link to nowhere) is an
// error, not a job without a key.
bool MayBeThere(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0 ||
         (errno != ENOENT && errno != ENOTDIR);
}

absl::Status FromFile(const std::string& path, Security* security) {
  auto secret = ReadKeyFile(path);
  if (!secret.ok()) return secret.status();
  std::error_code error;  // the folder that this process is in may be removed
  security->file = std::filesystem::absolute(path, error).string();
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot tell where the key ", path, " lies: ", error.message(),
        ". Name it by its whole path"));
  }
  security->secret = *std::move(secret);
  security->source = absl::StrCat("the key ", path);
  return absl::OkStatus();
}

absl::Status FromDescriptor(const std::string& text, Security* security) {
  int fd = -1;
  if (!absl::SimpleAtoi(text, &fd) || fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment variable ", kDescriptor, "=", text,
                     " is not a descriptor's number"));
  }
  auto secret = ReadKeyDescriptor(fd);
  if (!secret.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kDescriptor, "=", text, ": ", secret.status().message()));
  }
  security->secret = *std::move(secret);
  security->source = "the key of the command that started this process";
  return absl::OkStatus();
}

// Of both kinds of commands. The file that the user names, if any; whether the
// user wants no key.
absl::StatusOr<Security> Begin(const SecurityWish& wish,
                               const Variables& variables, std::string* file) {
  if (wish.insecure && (!wish.key_file.empty() || wish.require_encryption)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--insecure contradicts ",
        wish.key_file.empty() ? "--require-encryption" : "--key-file",
        ": give one of them"));
  }
  const auto insecure = Switch(variables, kInsecure);
  if (!insecure.ok()) return insecure.status();
  const auto require = Switch(variables, kRequire);
  if (!require.ok()) return require.status();
  if (*insecure && *require && wish.key_file.empty() && !wish.insecure &&
      !wish.require_encryption) {
    return absl::InvalidArgumentError(absl::StrCat(
        kInsecure, "=1 contradicts ", kRequire, "=1: set one of them"));
  }
  Security security;
  security.insecure = wish.insecure || (*insecure && wish.key_file.empty() &&
                                        !wish.require_encryption);
  security.require_encryption =
      !security.insecure && (wish.require_encryption || *require);
  *file = wish.key_file.empty() ? Text(variables, kFile) : wish.key_file;
  return security;
}

}  // namespace

std::string DefaultKeyPath(const Variables& variables) {
  const std::string config = Text(variables, "XDG_CONFIG_HOME");
  const std::string home = Text(variables, "HOME");
  // The specification wants relative ones ignored.
  if (absl::StartsWith(config, "/")) {
    return absl::StrCat(config, "/psring/key");
  }
  return home.empty() ? "" : absl::StrCat(home, "/.config/psring/key");
}

absl::StatusOr<Security> FindSecurity(const SecurityWish& wish,
                                      const Variables& variables) {
  std::string file;
  auto security = Begin(wish, variables, &file);
  if (!security.ok() || security->insecure) return security;
  const std::string descriptor = Text(variables, kDescriptor);
  const std::string usual = DefaultKeyPath(variables);
  absl::Status status;
  if (!file.empty()) {
    status = FromFile(file, &*security);
  } else if (!descriptor.empty()) {
    status = FromDescriptor(descriptor, &*security);
  } else if (!usual.empty() && MayBeThere(usual)) {
    status = FromFile(usual, &*security);
    if (!status.ok()) {
      status = absl::Status(
          status.code(),
          absl::StrCat(std::string(status.message()),
                       ". Remedy: name the key's file by PSRING_KEY_FILE, set "
                       "HOME or XDG_CONFIG_HOME to a folder of your own, or "
                       "set PSRING_INSECURE=1"));
    }
  } else if (security->require_encryption) {
    status = absl::FailedPreconditionError(
        "encryption is required, but there is no key: psring keygen makes one");
  }
  if (!status.ok()) return status;
  return security;
}

absl::StatusOr<Security> NewSecurity(const SecurityWish& wish,
                                     const Variables& variables) {
  std::string file;
  auto security = Begin(wish, variables, &file);
  if (!security.ok() || security->insecure) return security;
  if (!file.empty()) {
    if (absl::Status s = FromFile(file, &*security); !s.ok()) return s;
    return security;
  }
  security->secret = Secret::Random();
  security->source = "a key of this job alone";
  return security;
}

absl::Status CheckListening(const Security& security,
                            const std::string& address) {
  if (security.secret.has_value() || security.insecure || IsLoopback(address)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this process would listen on ", address,
      ", which other hosts reach, without a key. Run `psring keygen` once and "
      "`psring keygen --print | ssh HOST psring keygen --stdin` for every "
      "other host that does not share your home; or give --insecure "
      "(PSRING_INSECURE=1) where you trust the network"));
}

}  // namespace psring
