#include "lab/host/text_file.h"

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace psring {

absl::Status WriteTextFile(const std::string& path, absl::string_view text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace psring
