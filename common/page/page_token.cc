#include "common/page/page_token.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"
#include "common/page/web_query.h"

namespace psring {
namespace {

constexpr size_t kLeast = 16;
constexpr size_t kMost = 128;

// Of a file that cannot be used, not of a wrong flag.
absl::Status Error(const std::string& file, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("--page-token-file: ", file, " ", what));
}

absl::StatusOr<std::string> ReadOpen(const std::string& file, int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    return Error(file, "is no file");
  }
  if (about.st_uid != geteuid()) {
    return Error(file, "belongs to another user, who can read and change it");
  }
  if ((about.st_mode & 077) != 0) {
    return Error(file,
                 absl::StrCat("can be read by other users: chmod 600 ", file));
  }
  char bytes[kMost + 3];  // and the end of its line; more is no token
  const ssize_t size = read(fd, bytes, sizeof(bytes));
  if (size < 0) return Error(file, strerror(errno));
  const bool whole = size < static_cast<ssize_t>(sizeof(bytes));
  const std::string token(
      absl::StripAsciiWhitespace(absl::string_view(bytes, size)));
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
  if (!whole || !plain || token.size() < kLeast || token.size() > kMost) {
    return Error(file, absl::StrCat("holds no token: ", kLeast, " to ", kMost,
                                    " letters and digits. Remove it, and a "
                                    "new one is made"));
  }
  return token;
}

// NOT_FOUND: there is no such file.
absl::StatusOr<std::string> Read(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(file);
    return Error(file, strerror(errno));
  }
  auto token = ReadOpen(file, fd);
  close(fd);
  return token;
}

// The file appears whole, and takes nobody's place: false if there is one now.
absl::StatusOr<bool> Make(const std::string& file, const std::string& line) {
  const std::string temporary = absl::StrCat(file, ".", RandomToken());
  const int fd =
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  errno = fd < 0 ? errno : ENOSPC;  // of a write that ends early
  const bool written = fd >= 0 && write(fd, line.data(), line.size()) ==
                                      static_cast<ssize_t>(line.size());
  const bool made = written && link(temporary.c_str(), file.c_str()) == 0;
  const int why = errno;
  if (fd >= 0) close(fd);
  unlink(temporary.c_str());
  if (made) return true;
  if (written && why == EEXIST) return false;
  return Error(file, absl::StrCat("cannot be made: ", strerror(why),
                                  ". Name a file in another folder"));
}

}  // namespace

std::string ShownToken(absl::string_view authorization,
                       absl::string_view query) {
  constexpr absl::string_view kScheme = "Bearer ";  // in any case: RFC 9110
  if (absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return std::string(authorization.substr(kScheme.size()));
  }
  return QueryValue(query, "token");
}

absl::StatusOr<std::string> PageToken(const std::string& file) {
  const std::string fresh = RandomToken();
  if (file.empty()) return fresh;
  auto token = Read(file);
  if (!absl::IsNotFound(token.status())) return token;
  const auto folder = std::filesystem::path(file).parent_path();
  if (absl::Status s = MakePrivateFolders(folder); !s.ok()) {
    return Error(file, s.message());
  }
  const auto made = Make(file, fresh + "\n");
  if (!made.ok()) return made.status();
  if (*made) return fresh;
  token = Read(file);  // that of a job that began with this one
  if (absl::IsNotFound(token.status())) return Error(file, strerror(ENOENT));
  return token;
}

}  // namespace psring
