#include "worker/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/state/file.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 100;

std::string PathIn(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/", name);
}

absl::StatusOr<FileSum> ChecksumOf(const std::string& path) {
  const auto file = File::Open(path, O_RDONLY);
  if (!file.ok()) return file.status();
  FileSum sum;
  std::vector<char> block(1 << 20);
  while (true) {
    const auto got =
        file->ReadSomeAt(static_cast<int64_t>(sum.size_bytes), block.data(),
                         static_cast<int64_t>(block.size()));
    if (!got.ok()) return got.status();
    if (*got == 0) return sum;
    sum.crc = static_cast<uint32_t>(
        crc32(sum.crc, reinterpret_cast<const Bytef*>(block.data()),
              static_cast<uInt>(*got)));
    sum.size_bytes += *got;
  }
}

absl::Status SyncDirectory(const std::string& path) {
  auto directory = File::Open(path, O_RDONLY | O_DIRECTORY);
  return directory.ok() ? directory->Sync() : directory.status();
}

// The whole file from the runs that its writers have written, which must tile
// it: no byte is anybody's guess.
absl::StatusOr<FileSum> SumOfRuns(const std::string& name,
                                  const proto::SavedState& saved) {
  std::vector<const proto::SavedState::Run*> runs;
  for (const proto::SavedState::Run& run : saved.runs()) {
    if (run.file() == name) runs.push_back(&run);
  }
  std::sort(runs.begin(), runs.end(), [](const auto* a, const auto* b) {
    return a->begin() < b->begin();
  });
  FileSum sum;
  for (const proto::SavedState::Run* run : runs) {
    const auto end = static_cast<int64_t>(sum.size_bytes);
    if (run->begin() != end || run->size() <= 0) {
      return absl::InternalError(
          absl::StrCat(name, ": its bytes from ", end, " on were written ",
                       run->begin() > end ? "by nobody" : "twice"));
    }
    sum.crc =
        static_cast<uint32_t>(crc32_combine(sum.crc, run->crc(), run->size()));
    sum.size_bytes += static_cast<uint64_t>(run->size());
  }
  return sum;
}

absl::Status VerifyFile(const std::string& path, const FileSum& expected) {
  auto sum = ChecksumOf(path);
  if (!sum.ok()) return sum.status();
  if (sum->size_bytes != expected.size_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: ", sum->size_bytes,
                     " bytes where the manifest says ", expected.size_bytes));
  }
  if (sum->crc != expected.crc) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its checksum is not the manifest's"));
  }
  return absl::OkStatus();
}

// Of a name that no other job has.
absl::StatusOr<std::string> MakeTemporary(const std::string& directory,
                                          const std::string& name) {
  std::random_device random;
  std::string path;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    path = PathIn(directory, absl::StrFormat("%s%s-%08x", kTemporaryPrefix,
                                             name, random()));
    if (mkdir(path.c_str(), 0755) == 0) return path;
    if (errno != EEXIST) break;
  }
  return FileError("mkdir", path, errno);
}

using SaveStateCall =
    std::function<absl::StatusOr<proto::SavedState>(const std::string&)>;

absl::Status Fill(const std::string& temporary,
                  const CheckpointContents& contents,
                  const SaveStateCall& save_state) {
  auto saved = LayOutStateFiles(temporary, contents.layout, contents.slot_names,
                                contents.extras);
  if (!saved.ok()) return saved.status();
  const auto state = save_state(temporary);
  if (!state.ok()) return state.status();
  if (absl::Status s = WriteEdges(temporary, *state); !s.ok()) return s;
  saved->MergeFrom(*state);
  Manifest manifest{.progress = contents.progress, .files = {}};
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const auto sum = SumOfRuns(name, *saved);
    if (!sum.ok()) return sum.status();
    if (absl::Status s = VerifyFile(PathIn(temporary, name), *sum); !s.ok()) {
      return s;
    }
    manifest.files[name] = *sum;
  }
  if (absl::Status s = WriteManifest(temporary, manifest); !s.ok()) return s;
  return SyncDirectory(temporary);
}

}  // namespace

void MoveDamagedAside(const std::string& checkpoint) {
  std::string aside = absl::StrCat(checkpoint, ".damaged");
  std::error_code error;
  for (int i = 2; fs::exists(aside, error) && i < kMaxAttempts; ++i) {
    aside = absl::StrCat(checkpoint, ".damaged-", i);
  }
  fs::rename(checkpoint, aside, error);
  if (error) {
    LogWarning("$0 is damaged, and cannot be renamed: $1", checkpoint,
               error.message());
  } else {
    LogWarning("$0 was damaged, and is $1 now", checkpoint, aside);
  }
}

absl::Status WriteCheckpoint(const std::string& directory,
                             const CheckpointContents& contents,
                             const SaveStateCall& save_state,
                             const OwnCheckpoints& own) {
  const std::string name = CheckpointName(contents.progress.step);
  const std::string path = PathIn(directory, name);
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(path, error));
  if (exists) {
    const absl::Status verified = VerifyCheckpoint(path).status();
    if (verified.ok() && own.IsOthers(path)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path,
                       " is another run's: this one has neither written it nor "
                       "resumed from it, and does not overwrite it"));
    }
    if (verified.ok() || !IsDamage(verified)) return verified;
  }
  const auto temporary = MakeTemporary(directory, name);
  if (!temporary.ok()) return temporary.status();
  absl::Status status = Fill(*temporary, contents, save_state);
  if (status.ok()) {
    if (exists) MoveDamagedAside(path);
    if (std::rename(temporary->c_str(), path.c_str()) == 0) {
      return SyncDirectory(directory);
    }
    status = FileError("rename", path, errno);
  }
  fs::remove_all(*temporary, error);
  return status;
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

absl::StatusOr<Progress> VerifyCheckpoint(const std::string& checkpoint) {
  const auto manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return manifest.status();
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const auto file = manifest->files.find(name);
    if (file == manifest->files.end()) {
      return absl::DataLossError(absl::StrCat(PathIn(checkpoint, kManifestFile),
                                              " says nothing about ", name));
    }
    absl::Status status = VerifyFile(PathIn(checkpoint, name), file->second);
    if (!status.ok()) return status;
  }
  return manifest->progress;
}

}  // namespace psring
