#include "common/net/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

// More than any key has.
constexpr size_t kMaxBytes = 256;
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::StatusOr<Secret> ReadText(int fd) {
  char bytes[kMaxBytes];
  const ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
  if (size < 0) return absl::ErrnoToStatus(errno, "cannot read it");
  auto secret = Secret::FromText({bytes, static_cast<size_t>(size)});
  explicit_bzero(bytes, sizeof(bytes));
  return secret;
}

// `where`: a path, or what it is, for errors.
absl::Status WriteText(int fd, const Secret& secret, const std::string& where) {
  const std::string text = absl::StrCat(secret.ToText(), "\n");
  const ssize_t size = write(fd, text.data(), text.size());
  if (size == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  if (size >= 0) errno = ENOSPC;
  return Failed("write the key", where);
}

}  // namespace

absl::Status MakePrivateFolders(const std::filesystem::path& folder) {
  if (folder.empty() || access(folder.c_str(), F_OK) == 0) {
    return absl::OkStatus();
  }
  if (absl::Status s = MakePrivateFolders(folder.parent_path()); !s.ok()) {
    return s;
  }
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return Failed("make", folder);
}

absl::StatusOr<Secret> ReadKeyFile(const std::string& path) {
  // A pipe would block; its size and mode say nothing.
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(
        "there is no key ", path, ": psring keygen --key-file=", path,
        " makes one, and with --stdin takes another host's (psring keygen "
        "--print there)"));
  }
  if (file.fd() < 0) return Failed("read the key", path);
  struct stat about = {};
  if (fstat(file.fd(), &about) != 0) return Failed("read the key", path);
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key ", path, " is not a file"));
  }
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "the key %s belongs to user %d, who can read and change it. Remedy: "
        "chown %d %s, or a key of your own",
        path, about.st_uid, geteuid(), path));
  }
  if ((about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "others may read or change the key %s (mode %04o). Remedy: chmod 600 "
        "%s; if they may have read it, replace it on all hosts: psring keygen "
        "--force here, then psring keygen --print | ssh HOST psring keygen "
        "--stdin --force",
        path, about.st_mode & 07777, path));
  }
  auto secret = ReadText(file.fd());
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", secret.status().message()));
}

absl::Status WriteKeyFile(const std::string& path, const Secret& secret,
                          bool overwrite) {
  struct stat there = {};
  if (overwrite && stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("what is at ", path,
                     " is not a file, and a key does not take its place"));
  }
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  if (absl::Status s = MakePrivateFolders(folder); !s.ok()) return s;
  const std::string temporary = absl::StrCat(path, ".", getpid());
  {
    const File file(open(temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                         0600));
    if (file.fd() < 0) return Failed("write the key", temporary);
    absl::Status status = WriteText(file.fd(), secret, temporary);
    if (status.ok() && fsync(file.fd()) != 0) {
      status = Failed("write the key", temporary);
    }
    if (!status.ok()) {
      unlink(temporary.c_str());
      return status;
    }
  }
  // It appears whole; a link takes nobody's place.
  const int rc = overwrite ? rename(temporary.c_str(), path.c_str())
                           : link(temporary.c_str(), path.c_str());
  const int error = errno;
  unlink(temporary.c_str());
  if (rc == 0) return absl::OkStatus();
  if (error == EEXIST) {
    return absl::AlreadyExistsError(absl::StrCat(
        "there is a key already: ", path,
        ". To copy it to another host: psring keygen --print | ssh HOST psring "
        "keygen --stdin. --force replaces it, and then all hosts need the new "
        "one"));
  }
  errno = error;
  return Failed("write the key", path);
}

absl::StatusOr<KeyDescriptor> KeyDescriptor::Create(const Secret& secret) {
  int fd = memfd_create("psring-key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // Hosts with vm.memfd_noexec=2 want this said; old kernels do not know it.
  if (fd < 0 && (errno == EACCES || errno == EINVAL)) {
    fd = memfd_create("psring-key",
                      MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  }
  KeyDescriptor key(fd);
  if (key.fd_ < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  if (absl::Status s = WriteText(key.fd_, secret, "into memory"); !s.ok()) {
    return s;
  }
  // Whom /proc shows it, too, may not open it.
  if (fchmod(key.fd_, S_IRUSR) != 0) {
    return absl::ErrnoToStatus(errno, "cannot hide the key's memory");
  }
  if (fcntl(key.fd_, F_ADD_SEALS, kSeals) != 0) {
    return absl::ErrnoToStatus(errno, "cannot seal the key's memory");
  }
  return key;
}

KeyDescriptor::~KeyDescriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Secret> ReadKeyDescriptor(int fd) {
  // A number that means something else by now has no such seals. The kernel may
  // add some of its own.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the descriptor ", fd,
        " is not a key's: what was started between psring and this process "
        "has closed it. Give psring the key by --key-file"));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return ReadText(fd);
}

}  // namespace psring
