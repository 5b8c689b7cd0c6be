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
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kManifest[] = "manifest.json";
constexpr char kPrefix[] = "step-";
constexpr int kFormat = 1;

struct Checksum {
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
};

absl::StatusOr<Checksum> ChecksumOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::DataLossError(absl::StrCat("cannot open ", path.string()));
  }
  Checksum sum;
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

std::string TextOf(const json& manifest) { return manifest.dump(2) + "\n"; }

uint32_t CrcOf(const json& manifest) {
  const std::string text = manifest.dump();
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()),
            static_cast<uInt>(text.size())));
}

absl::Status WriteManifest(const fs::path& directory,
                           const Progress& progress) {
  json files = json::object();
  for (const char* name : {kModelFile, kOptimizerFile}) {
    auto sum = ChecksumOf(directory / name);
    if (!sum.ok()) return sum.status();
    files[name] = {{"bytes", sum->size_bytes}, {"crc32", sum->crc}};
  }
  json manifest = {{"format", kFormat},
                   {"step", progress.step},
                   {"workers", progress.num_workers},
                   {"batch_size", progress.batch_size},
                   {"seed", progress.seed},
                   {"model", progress.model},
                   {"data", progress.data},
                   {"optimizer", progress.optimizer},
                   {"files", files}};
  manifest["crc32"] = CrcOf(manifest);
  std::ofstream out(directory / kManifest);
  out << TextOf(manifest);
  out.close();
  if (!out) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", (directory / kManifest).string(), ": ",
                     strerror(errno)));
  }
  return SyncPath(directory / kManifest);
}

absl::StatusOr<json> ReadManifest(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  json manifest = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path.string(), " ", what));
  };
  if (!file) return damaged("cannot be read");
  if (!manifest.is_object() || !manifest.contains("crc32") ||
      !manifest["crc32"].is_number_unsigned() ||
      text.str() != TextOf(manifest)) {
    return damaged("is damaged");
  }
  const json crc = manifest["crc32"];
  manifest.erase("crc32");
  if (crc != CrcOf(manifest)) return damaged("is damaged");
  if (manifest["format"] != kFormat) {
    return damaged("was written by another version of psring");
  }
  return manifest;
}

absl::Status VerifyFile(const fs::path& directory, const std::string& name,
                        const json& expected) {
  auto sum = ChecksumOf(directory / name);
  if (!sum.ok()) return sum.status();
  if (sum->size_bytes != expected["bytes"]) {
    return absl::DataLossError(absl::StrCat(
        (directory / name).string(), " is damaged: ", sum->size_bytes,
        " bytes where the manifest says ", expected["bytes"].get<uint64_t>()));
  }
  if (sum->crc != expected["crc32"]) {
    return absl::DataLossError(
        absl::StrCat((directory / name).string(),
                     " is damaged: its checksum is not the manifest's"));
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
  if (absl::Status s = WriteManifest(temporary, contents.progress); !s.ok()) {
    return s;
  }
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
  auto manifest = ReadManifest(directory / kManifest);
  absl::Status status = manifest.status();
  for (const char* name : {kModelFile, kOptimizerFile}) {
    if (!status.ok()) break;
    status = VerifyFile(directory, name, (*manifest)["files"][name]);
  }
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat(std::string(status.message()), ". Remove ", checkpoint,
                     " to go on from the one before it"));
  }
  Progress progress;
  progress.step = (*manifest)["step"];
  progress.num_workers = (*manifest)["workers"];
  progress.batch_size = (*manifest)["batch_size"];
  progress.seed = (*manifest)["seed"];
  progress.model = (*manifest)["model"];
  progress.data = (*manifest)["data"];
  progress.optimizer = (*manifest)["optimizer"];
  return progress;
}

}  // namespace psring
