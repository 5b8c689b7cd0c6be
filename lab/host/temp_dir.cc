#include "lab/host/temp_dir.h"

#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace psring {

absl::StatusOr<TempDir> TempDir::Create() {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  std::string path = (base / "psring-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot make a temporary directory in ",
                            base.string(), " (set TMPDIR to another place)"));
  }
  return TempDir(std::move(path));
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace psring
