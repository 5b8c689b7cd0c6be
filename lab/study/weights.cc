#include "lab/study/weights.h"

#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/state/state_files.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 1 << 20;

absl::StatusOr<std::ifstream> Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return file;
}

// The next bytes, at most kPieceBytes; none at the end.
size_t ReadPiece(std::ifstream& file, std::string* piece) {
  piece->resize(kPieceBytes);
  file.read(piece->data(), kPieceBytes);
  piece->resize(file.gcount());
  return piece->size();
}

}  // namespace

absl::StatusOr<std::string> FindLastWeights(const std::string& checkpoint_dir) {
  fs::path last;
  fs::file_time_type last_time;
  std::error_code error;
  for (const auto& entry :
       fs::recursive_directory_iterator(checkpoint_dir, error)) {
    if (entry.path().filename() != kModelFile) continue;
    const fs::file_time_type time = entry.last_write_time(error);
    if (last.empty() || time > last_time) {
      last = entry.path();
      last_time = time;
    }
  }
  if (last.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no ", kModelFile, " below ", checkpoint_dir));
  }
  return last.string();
}

absl::StatusOr<uint32_t> Crc32OfFile(const std::string& path) {
  auto file = Open(path);
  if (!file.ok()) return file.status();
  uint32_t crc = 0;
  std::string piece;
  while (ReadPiece(*file, &piece) > 0) {
    crc = static_cast<uint32_t>(
        crc32(crc, reinterpret_cast<const Bytef*>(piece.data()),
              static_cast<uInt>(piece.size())));
  }
  return crc;
}

}  // namespace psring
