#include "lab/page/report_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/state/file.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const fs::path& path, absl::string_view why,
                         absl::string_view another) {
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write ", path.string(), why.empty() ? "" : ": ", why,
                   ". Choose ", another));
}

absl::Status DiskIsFull(const fs::path& path, absl::string_view why,
                        absl::string_view another) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path.string(), ": ", why,
                   ". Free space there, or choose ", another));
}

// Returns when the disk has it.
absl::Status WriteToDisk(const fs::path& path, absl::string_view text) {
  auto file = File::Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return file.status();
  absl::Status s =
      file->WriteAt(0, text.data(), static_cast<int64_t>(text.size()));
  return s.ok() ? file->Sync() : s;
}

// Beside `path`, which it may replace; the file that it has written.
absl::StatusOr<fs::path> WriteTemporary(const fs::path& path,
                                        absl::string_view text,
                                        absl::string_view another) {
  fs::path temporary = path;
  temporary += absl::StrCat(".", getpid(), ".tmp");
  const absl::Status written = WriteToDisk(temporary, text);
  if (written.ok()) return temporary;
  std::error_code error;
  fs::remove(temporary, error);
  return absl::IsResourceExhausted(written)
             ? DiskIsFull(path, written.message(), another)
             : CannotWrite(path, written.message(), another);
}

}  // namespace

absl::Status CheckReportPath(const std::string& directory,
                             const std::vector<std::string>& names,
                             absl::string_view another) {
  std::error_code error;
  const std::string extension = fs::path(directory).extension().string();
  if ((extension == ".html" || extension == ".json") &&
      !fs::exists(directory, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out=", directory, " names a file: give the folder for ",
                     absl::StrJoin(names, " and ")));
  }
  fs::create_directories(directory, error);
  if (error) return CannotWrite(directory, error.message(), another);
  for (const std::string& name : names) {
    if (fs::is_directory(fs::path(directory) / name, error)) {
      return CannotWrite(fs::path(directory) / name, "it is a folder", another);
    }
  }
  auto probe = WriteTemporary(fs::path(directory) / names.front(), "", another);
  if (!probe.ok()) return probe.status();
  fs::remove(*probe, error);
  return absl::OkStatus();
}

absl::Status WriteReportFile(const std::string& directory,
                             const std::string& name, absl::string_view text,
                             absl::string_view another) {
  const fs::path path = fs::path(directory) / name;
  const auto temporary = WriteTemporary(path, text, another);
  if (!temporary.ok()) return temporary.status();
  std::error_code error;
  fs::rename(*temporary, path, error);
  if (error) return CannotWrite(path, error.message(), another);
  auto folder = File::Open(directory, O_RDONLY | O_DIRECTORY);
  return folder.ok() ? folder->Sync() : folder.status();
}

std::string ReportPath(const std::string& directory, const std::string& name) {
  return (std::filesystem::absolute(directory).lexically_normal() / name)
      .string();
}

}  // namespace psring
