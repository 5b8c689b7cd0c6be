// Where a job's secret lies: in a file that only its owner reads, or in memory
// that a parent hands to its children by a descriptor, so that neither a
// command line nor an environment has it.
#ifndef PSRING_COMMON_NET_KEY_FILE_H_
#define PSRING_COMMON_NET_KEY_FILE_H_

#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/keys.h"

namespace psring {

// NOT_FOUND; PERMISSION_DENIED where others may read it too, or own it, with
// what to type; INVALID_ARGUMENT where it holds no key.
absl::StatusOr<Secret> ReadKeyFile(const std::string& path);

// Readable by its owner only; folders that are missing are made likewise.
// ALREADY_EXISTS where there is such a file and not `overwrite`.
absl::Status WriteKeyFile(const std::string& path, const Secret& secret,
                          bool overwrite);

// Makes each folder that is missing, for its owner only. Errors name the one
// that cannot be made.
absl::Status MakePrivateFolders(const std::filesystem::path& folder);

// Sealed memory with a secret, for children that inherit its descriptor. In
// this process it is closed on exec.
class KeyDescriptor {
 public:
  static absl::StatusOr<KeyDescriptor> Create(const Secret& secret);
  ~KeyDescriptor();
  KeyDescriptor(KeyDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  KeyDescriptor& operator=(KeyDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }

 private:
  explicit KeyDescriptor(int fd) : fd_(fd) {}

  int fd_;
};

// What a parent has handed down. It may be read again. What this process
// executes from now on does not get it; forks keep it. INVALID_ARGUMENT: there
// is no such memory.
absl::StatusOr<Secret> ReadKeyDescriptor(int fd);

}  // namespace psring

#endif  // PSRING_COMMON_NET_KEY_FILE_H_
