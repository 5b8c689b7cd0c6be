#include "lab/page/report_files.h"

#include <fcntl.h>
#include <sys/stat.h>
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

// Where a link leads, which stays a link: /dev/stdout, too, is one.
fs::path Followed(const fs::path& path) {
  std::error_code error;
  const fs::path followed = fs::canonical(path, error);
  return error ? path : followed;
}

// A file would take its place: a device's, or a pipe's.
bool IsSpecial(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// In a folder such as /tmp, another user can have put a link to this user's
// files in the place of one that will be made.
int NoLinkOfOthers(const fs::path& path) {
  struct stat there = {};
  const bool own_link = lstat(path.c_str(), &there) == 0 &&
                        S_ISLNK(there.st_mode) && there.st_uid == geteuid();
  return own_link ? 0 : O_NOFOLLOW;
}

// Returns when the disk has it.
absl::Status WriteToDisk(const fs::path& path, absl::string_view text) {
  auto file =
      File::Open(path, O_WRONLY | O_CREAT | O_TRUNC | NoLinkOfOthers(path));
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
    if (IsSpecial(fs::path(directory) / name)) {
      return CannotWrite(fs::path(directory) / name, "it is not a file",
                         another);
    }
  }
  auto probe = WriteTemporary(Followed(fs::path(directory) / names.front()), "",
                              another);
  if (!probe.ok()) return probe.status();
  fs::remove(*probe, error);
  return absl::OkStatus();
}

absl::Status WriteReportFile(const std::string& directory,
                             const std::string& name, absl::string_view text,
                             absl::string_view another) {
  const fs::path path = Followed(fs::path(directory) / name);
  if (IsSpecial(path)) return CannotWrite(path, "it is not a file", another);
  const auto temporary = WriteTemporary(path, text, another);
  if (!temporary.ok()) return temporary.status();
  std::error_code error;
  fs::rename(*temporary, path, error);
  if (error) return CannotWrite(path, error.message(), another);
  const std::string parent = path.parent_path().string();
  auto folder = File::Open(parent, O_RDONLY | O_DIRECTORY);
  return folder.ok() ? folder->Sync() : folder.status();
}

std::string ReportPath(const std::string& directory, const std::string& name) {
  return (std::filesystem::absolute(directory).lexically_normal() / name)
      .string();
}

}  // namespace psring
