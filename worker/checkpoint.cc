#include "worker/checkpoint.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";

absl::StatusOr<FileSum> ChecksumOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::DataLossError(absl::StrCat("cannot open ", path.string()));
  }
  FileSum sum;
  std::vector<char> block(1 << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto got = static_cast<uInt>(file.gcount());
    sum.crc = static_cast<uint32_t>(
        crc32(sum.crc, reinterpret_cast<const Bytef*>(block.data()), got));
    sum.size_bytes += got;
  }
  return sum;
}

absl::Status SyncPath(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return ok ? absl::OkStatus()
            : absl::InternalError(absl::StrCat("cannot sync ", path.string(),
                                               ": ", strerror(error)));
}

absl::StatusOr<Manifest> ManifestFor(const fs::path& directory,
                                     const Progress& progress) {
  Manifest manifest{.progress = progress, .files = {}};
  for (const char* name : {kModelFile, kOptimizerFile}) {
    auto sum = ChecksumOf(directory / name);
    if (!sum.ok()) return sum.status();
    manifest.files[name] = *sum;
  }
  return manifest;
}

absl::Status VerifyFile(const fs::path& path, const FileSum& expected) {
  auto sum = ChecksumOf(path);
  if (!sum.ok()) return sum.status();
  if (sum->size_bytes != expected.size_bytes) {
    return absl::DataLossError(
        absl::StrCat(path.string(), " is damaged: ", sum->size_bytes,
                     " bytes where the manifest says ", expected.size_bytes));
  }
  if (sum->crc != expected.crc) {
    return absl::DataLossError(absl::StrCat(
        path.string(), " is damaged: its checksum is not the manifest's"));
  }
  return absl::OkStatus();
}

std::vector<std::string> CheckpointsIn(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, kPrefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status CannotWrite(const std::string& directory) {
  return absl::PermissionDeniedError(
      absl::StrCat("--checkpoint-dir: cannot write into ", directory, ": ",
                   strerror(errno)));
}

}  // namespace

absl::Status PrepareCheckpointDirectory(const std::string& directory,
                                        bool resume) {
  std::error_code error;
  fs::create_directories(directory, error);
  std::string probe = directory + "/.psring-probe-XXXXXX";
  const int fd = mkstemp(probe.data());
  if (fd < 0) return CannotWrite(directory);
  close(fd);
  unlink(probe.c_str());
  const std::vector<std::string> present = CheckpointsIn(directory);
  if (resume || present.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "--checkpoint-dir=", directory, " holds an earlier run's ",
      present.back(),
      ". Resume from it with --resume, or choose another directory"));
}

absl::Status WriteCheckpoint(
    const std::string& directory, const CheckpointContents& contents,
    const std::function<absl::Status(const std::string&)>& save_state) {
  const std::string name =
      absl::StrFormat("%s%08d", kPrefix, contents.progress.step);
  const fs::path final_path = fs::path(directory) / name;
  if (fs::exists(final_path)) return absl::OkStatus();  // resumed exactly here
  const fs::path temporary = fs::path(directory) / (".incomplete-" + name);
  std::error_code error;
  fs::remove_all(temporary, error);
  if (mkdir(temporary.c_str(), 0755) != 0) return CannotWrite(directory);
  if (absl::Status s = LayOutStateFiles(temporary, contents.layout,
                                        contents.slot_names, contents.extras);
      !s.ok()) {
    return s;
  }
  if (absl::Status s = save_state(temporary); !s.ok()) return s;
  const auto manifest = ManifestFor(temporary, contents.progress);
  if (!manifest.ok()) return manifest.status();
  if (absl::Status s = WriteManifest(temporary, *manifest); !s.ok()) return s;
  if (absl::Status s = SyncPath(temporary); !s.ok()) return s;
  if (std::rename(temporary.c_str(), final_path.c_str()) != 0) {
    return CannotWrite(directory);
  }
  return SyncPath(directory);
}

absl::StatusOr<std::string> LatestCheckpoint(const std::string& directory) {
  const std::vector<std::string> present = CheckpointsIn(directory);
  if (!present.empty()) return present.back();
  return absl::NotFoundError(absl::StrCat(
      "--resume: no checkpoint in '", directory,
      "'. It must be a directory that this host sees and that holds step-..."));
}

absl::StatusOr<Progress> VerifyCheckpoint(const std::string& checkpoint) {
  const fs::path directory(checkpoint);
  const auto manifest = ReadManifest(checkpoint);
  absl::Status status = manifest.status();
  for (const char* name : {kModelFile, kOptimizerFile}) {
    if (!status.ok()) break;
    status = VerifyFile(directory / name, manifest->files.at(name));
  }
  if (status.ok()) return manifest->progress;
  return absl::Status(
      status.code(),
      absl::StrCat(std::string(status.message()), ". Remove ", checkpoint,
                   " to go on from the one before it"));
}

}  // namespace psring
