#include "common/trace/earlier_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr int kMostKept = 10'000;

}  // namespace

void KeepEarlierFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) {
    return;
  }
  for (int i = 1; i < kMostKept; ++i) {
    const std::string kept = absl::StrCat(path, ".", i);
    if (fs::exists(fs::symlink_status(kept, error))) continue;
    fs::rename(path, kept, error);
    return;
  }
}

}  // namespace psring
