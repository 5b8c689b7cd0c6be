// A private directory that goes away with its owner.
#ifndef PSRING_LAB_HOST_TEMP_DIR_H_
#define PSRING_LAB_HOST_TEMP_DIR_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace psring {

class TempDir {
 public:
  // Under $TMPDIR, or /tmp.
  static absl::StatusOr<TempDir> Create();

  // Removes it and all it holds.
  ~TempDir();
  TempDir(TempDir&& other) : path_(std::exchange(other.path_, "")) {}
  TempDir& operator=(TempDir&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_TEMP_DIR_H_
