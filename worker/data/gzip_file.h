// Whole files, plain or compressed by gzip: the only door to zlib.
#ifndef PSRING_WORKER_DATA_GZIP_FILE_H_
#define PSRING_WORKER_DATA_GZIP_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace psring {

struct FileContents {
  std::string path;   // of the file that was read
  std::string bytes;  // unpacked
};

// No data set's file is larger; one that holds or unpacks to more is refused
// before it fills the memory. Below what zlib counts in 32 bits.
inline constexpr int64_t kMaxFileBytes = (int64_t{4} << 30) - 1;

// Reads all of one file as it is; errors as below.
absl::StatusOr<std::string> ReadPlain(const std::string& path,
                                      int64_t max_bytes = kMaxFileBytes);

// Reads all of one file; whether it is compressed shows in its bytes, not in
// its name. Memory grows with what is read, never with what a header claims. Of
// a file of several compressed parts, the first. Errors, each with the path:
// NOT_FOUND, PERMISSION_DENIED, DATA_LOSS (compressed and cut short or
// damaged), INVALID_ARGUMENT (a folder), RESOURCE_EXHAUSTED (more than
// `max_bytes`). Blocks on the disk.
absl::StatusOr<FileContents> ReadPlainOrGzip(const std::string& path,
                                             int64_t max_bytes = kMaxFileBytes);

// Reads the first of `paths` that exists; NOT_FOUND lists all that were tried.
absl::StatusOr<FileContents> ReadFirstOf(const std::vector<std::string>& paths);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_GZIP_FILE_H_
