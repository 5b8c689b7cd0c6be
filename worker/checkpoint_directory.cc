#include "worker/checkpoint_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/state/directory_probe.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kLockFile[] = "/.lock";
constexpr int64_t kMaxHolderBytes = 500;
constexpr absl::Duration kLockRetry = absl::Milliseconds(50);

// The step of a checkpoint's name; none of any other name.
std::optional<int64_t> StepOf(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) || name.empty() ||
      !std::all_of(name.begin(), name.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(name, &step)) {
    return std::nullopt;
  }
  return step;
}

// All names in a directory; none where there is no such directory.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  while (!error && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename());
    entry.increment(error);
  }
  if (!error || error == std::errc::no_such_file_or_directory) return names;
  return absl::InternalError(
      absl::StrCat("cannot list ", directory, ": ", error.message()));
}

absl::Status OfFlag(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("--checkpoint-dir: ", status.message()));
}

absl::Status Probe(const std::string& directory) {
  const auto probe = MakeProbe(directory);
  if (!probe.ok()) return OfFlag(probe.status());
  unlink(probe->c_str());
  return absl::OkStatus();
}

absl::Status RefuseEarlierRun(const std::string& directory) {
  const auto present = CheckpointsIn(directory);
  if (!present.ok()) return present.status();
  if (present->empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "--checkpoint-dir=", directory, " holds an earlier run's ",
      present->back().path,
      ". Resume from it with --resume, or choose another directory"));
}

std::string HolderIn(const File& file) {
  const int64_t size =
      std::min<int64_t>(file.Size().value_or(0), kMaxHolderBytes);
  std::string holder(size, '\0');
  return file.ReadAt(0, holder.data(), size).ok() ? holder : "";
}

std::string Held(const std::string& directory, const File& file) {
  const std::string holder = HolderIn(file);
  return absl::StrCat("--checkpoint-dir=", directory, " is in use by ",
                      holder.empty() ? "another job" : holder);
}

absl::StatusOr<std::optional<File>> LockFile(
    const std::string& directory, const std::string& holder, Time deadline,
    const std::function<absl::Status()>& goes_on) {
  auto file = File::Open(directory + kLockFile, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();
  absl::Status locked = file->Lock();
  if (absl::IsUnavailable(locked)) {  // a dying job's, it may be
    LogInfo(
        "$0: waits for its end, at most $1", Held(directory, *file),
        absl::FormatDuration(absl::Ceil(deadline - Now(), absl::Seconds(1))));
  }
  while (absl::IsUnavailable(locked)) {
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          Held(directory, *file),
          ". Two jobs cannot write into one directory: end that one, or choose "
          "another directory"));
    }
    absl::SleepFor(kLockRetry);
    if (absl::Status s = goes_on(); !s.ok()) return s;
    locked = file->Lock();
  }
  if (!locked.ok()) {
    LogWarning("$0: see to it that no other job writes into $1",
               locked.message(), directory);
    return std::optional<File>();
  }
  // The name is for messages alone: a full disk must not end a resumption.
  file->Resize(0).IgnoreError();
  file->WriteAt(0, holder.data(), static_cast<int64_t>(holder.size()))
      .IgnoreError();
  return std::optional<File>(*std::move(file));
}

void RemoveIncomplete(const std::string& directory) {
  const auto names = NamesIn(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, kTemporaryPrefix) &&
        !absl::StartsWith(name, kProbePrefix)) {
      continue;
    }
    std::error_code error;
    fs::remove_all(fs::path(directory) / name, error);
    if (error) {
      LogWarning("cannot remove $0/$1: $2", directory, name, error.message());
    }
  }
}

// Under another name first: a checkpoint goes whole, as it came.
void RemoveCheckpoint(const std::string& directory,
                      const CheckpointEntry& checkpoint) {
  const fs::path aside =
      fs::path(directory) /
      absl::StrCat(kTemporaryPrefix, "removed-", checkpoint.step);
  std::error_code error;
  fs::rename(checkpoint.path, aside, error);
  if (!error) fs::remove_all(aside, error);
  if (error) {
    LogWarning("cannot remove $0: $1", checkpoint.path, error.message());
  } else {
    LogInfo("removes $0 (--checkpoint-keep)", checkpoint.path);
  }
}

}  // namespace

std::string CheckpointName(int64_t step) {
  return absl::StrFormat("%s%08d", kPrefix, step);
}

absl::StatusOr<std::vector<CheckpointEntry>> CheckpointsIn(
    const std::string& directory) {
  const auto names = NamesIn(directory);
  if (!names.ok()) return names.status();
  std::vector<CheckpointEntry> found;
  for (const std::string& name : *names) {
    const std::optional<int64_t> step = StepOf(name);
    const std::string path = absl::StrCat(directory, "/", name);
    std::error_code error;
    if (step.has_value() && fs::is_directory(path, error)) {
      found.push_back({*step, path});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.step != b.step ? a.step < b.step : a.path < b.path;
  });
  return found;
}

void RemoveOldCheckpoints(const std::string& directory, int64_t step,
                          int64_t keep) {
  if (keep <= 0) return;
  auto present = CheckpointsIn(directory);
  if (!present.ok()) return;
  while (!present->empty() && present->back().step > step) present->pop_back();
  const auto size = static_cast<int64_t>(present->size());
  for (int64_t i = 0; i + keep < size; ++i) {
    RemoveCheckpoint(directory, (*present)[i]);
  }
}

absl::StatusOr<CheckpointLock> CheckpointLock::Take(
    const std::string& directory, bool resume, const std::string& holder,
    Time deadline, const std::function<absl::Status()>& goes_on) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return OfFlag(absl::PermissionDeniedError(
        absl::StrCat("cannot write into ", directory, ": ", error.message())));
  }
  absl::Status status = resume ? absl::OkStatus() : RefuseEarlierRun(directory);
  status.Update(Probe(directory));
  if (!status.ok()) return status;
  auto file = LockFile(directory, holder, deadline, goes_on);
  if (!file.ok()) return file.status();
  // Once more: another job may have ended while this one waited.
  if (!resume) {
    if (absl::Status s = RefuseEarlierRun(directory); !s.ok()) return s;
  }
  if (file->has_value()) RemoveIncomplete(directory);
  return CheckpointLock(*std::move(file));
}

}  // namespace psring
