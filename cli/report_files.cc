#include "cli/report_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const fs::path& path, const std::string& why) {
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write ", path.string(), why.empty() ? "" : ": ", why,
                   ". Choose another folder with --out"));
}

}  // namespace

absl::Status CheckReportPath(const std::string& directory,
                             const std::vector<std::string>& names) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return CannotWrite(directory, error.message());
  for (const std::string& name : names) {
    if (fs::is_directory(fs::path(directory) / name, error)) {
      return CannotWrite(fs::path(directory) / name, "it is a folder");
    }
  }
  const std::string probe = ".psring-report-probe";
  absl::Status s = WriteReportFile(directory, probe, "");
  fs::remove(fs::path(directory) / probe, error);
  return s;
}

absl::Status WriteReportFile(const std::string& directory,
                             const std::string& name, absl::string_view text) {
  const fs::path path = fs::path(directory) / name;
  fs::path temporary = path;
  temporary += absl::StrCat(".", getpid(), ".tmp");
  std::ofstream file(temporary, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  std::error_code error;
  if (!file) {
    fs::remove(temporary, error);
    return CannotWrite(path, "");
  }
  fs::rename(temporary, path, error);
  return error ? CannotWrite(path, error.message()) : absl::OkStatus();
}

}  // namespace psring
