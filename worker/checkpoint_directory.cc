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
// For a job that has looked whether it may have the directory, and ends.
constexpr absl::Duration kKeepPatience = absl::Seconds(1);

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

absl::Status MakeWritable(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  return OfFlag(absl::PermissionDeniedError(
      absl::StrCat("cannot write into ", directory, ": ", error.message())));
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

absl::Status InUse(const std::string& directory, const File& file) {
  return absl::UnavailableError(
      absl::StrCat(Held(directory, file),
                   ". Two jobs cannot write into one directory: end that one, "
                   "or choose another directory"));
}

// A job that runs has written checkpoints, too, from which nobody resumes yet.
absl::Status RefuseLivingRun(const std::string& directory) {
  auto file = File::Open(directory + kLockFile, O_RDWR);
  if (!file.ok() || !absl::IsUnavailable(file->Lock())) return absl::OkStatus();
  return InUse(directory, *file);
}

// `locked`: by this job.
absl::Status RefuseEarlierRun(const std::string& directory, bool locked) {
  const auto present = CheckpointsIn(directory);
  if (!present.ok()) return present.status();
  if (present->empty()) return absl::OkStatus();
  if (!locked) {
    if (absl::Status s = RefuseLivingRun(directory); !s.ok()) return s;
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "--checkpoint-dir=", directory, " holds an earlier run's ",
      present->back().path,
      ". Resume from it with --resume, or choose another directory"));
}

absl::StatusOr<File> OpenLock(const std::string& directory) {
  // Whoever may read a file may lock it.
  auto file = File::Open(directory + kLockFile, O_RDWR | O_CREAT, 0600);
  if (file.ok()) return file;
  if (!absl::IsPermissionDenied(file.status())) return OfFlag(file.status());
  return OfFlag(absl::PermissionDeniedError(absl::StrCat(
      file.status().message(),
      ". Another user's job has made it: let this user write it, or choose "
      "another directory")));
}

// None: it cannot be locked. Opens it anew each time: while this job waits,
// somebody may put another file, or another directory, in its place.
absl::StatusOr<std::optional<File>> LockFile(
    const std::string& directory, Time deadline,
    const std::function<absl::Status()>& goes_on) {
  bool waits = false;
  while (true) {
    if (absl::Status s = MakeWritable(directory); !s.ok()) return s;
    auto file = OpenLock(directory);
    if (!file.ok()) return file.status();
    const absl::Status locked = file->Lock();
    if (!locked.ok() && !absl::IsUnavailable(locked)) {
      LogWarning("$0: see to it that no other job writes into $1",
                 locked.message(), directory);
      return std::optional<File>();
    }
    if (locked.ok() && file->IsInPlace().value_or(true)) {
      return std::optional<File>(*std::move(file));
    }
    if (Now() >= deadline) return InUse(directory, *file);
    if (!locked.ok() && !waits) {  // a dying job's, it may be
      waits = true;
      LogInfo(
          "$0: waits for its end, at most $1", Held(directory, *file),
          absl::FormatDuration(absl::Ceil(deadline - Now(), absl::Seconds(1))));
    }
    absl::SleepFor(kLockRetry);
    if (absl::Status s = goes_on(); !s.ok()) return s;
  }
}

// For messages alone: a full disk must not end a resumption.
void WriteHolder(const std::string& holder, File& file) {
  file.Resize(0).IgnoreError();
  file.WriteAt(0, holder.data(), static_cast<int64_t>(holder.size()))
      .IgnoreError();
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

// Under another name first: a checkpoint goes whole, as it came. Another
// user's, of which nothing can be removed, gets its own name back.
void RemoveCheckpoint(const std::string& directory,
                      const CheckpointEntry& checkpoint) {
  const fs::path aside =
      fs::path(directory) /
      absl::StrCat(kTemporaryPrefix, "removed-", checkpoint.step);
  std::error_code error;
  fs::rename(checkpoint.path, aside, error);
  if (error) {
    LogWarning("cannot remove $0: $1", checkpoint.path, error.message());
    return;
  }
  const auto before = NamesIn(aside);
  fs::remove_all(aside, error);
  if (!error) {
    LogInfo("removes $0 (--checkpoint-keep)", checkpoint.path);
    return;
  }
  LogWarning("cannot remove $0: $1", checkpoint.path, error.message());
  const auto after = NamesIn(aside);
  if (before.ok() && after.ok() && after->size() == before->size()) {
    fs::rename(aside, checkpoint.path, error);
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
  absl::Status status = MakeWritable(directory);
  if (!resume) status.Update(RefuseEarlierRun(directory, /*locked=*/false));
  status.Update(Probe(directory));
  if (!status.ok()) return status;
  auto file = LockFile(directory, deadline, goes_on);
  if (!file.ok()) return file.status();
  // Once more: another job may have ended while this one waited.
  if (!resume) {
    status = RefuseEarlierRun(directory, /*locked=*/true);
    if (!status.ok()) return status;
  }
  if (file->has_value()) {
    WriteHolder(holder, **file);
    RemoveIncomplete(directory);
  }
  return CheckpointLock(directory, holder, *std::move(file));
}

absl::StatusOr<bool> CheckpointLock::IsHeld() const {
  if (file_.has_value()) return file_->IsInPlace();
  return !lost_ && access((directory_ + kLockFile).c_str(), F_OK) == 0;
}

absl::Status CheckpointLock::Keep(
    const std::function<bool(const std::string&)>& is_others) {
  const auto held = IsHeld();
  if (!held.ok()) return held.status();
  if (!*held && !lost_) {
    LogWarning(
        "$0 is not the directory any more that this job has locked: it or its "
        ".lock was removed, or moved. This job takes it again",
        directory_);
  }
  lost_ = !*held;
  if (!lost_) return absl::OkStatus();
  absl::Status status = MakeWritable(directory_);
  status.Update(Probe(directory_));
  if (!status.ok()) return status;
  auto file = LockFile(directory_, Now() + kKeepPatience, absl::OkStatus);
  if (absl::IsUnavailable(file.status())) {
    return absl::FailedPreconditionError(file.status().message());
  }
  if (!file.ok()) return file.status();
  const std::string last = file->has_value() ? HolderIn(**file) : "";
  const auto present = CheckpointsIn(directory_);
  if (!present.ok()) return present.status();
  for (const CheckpointEntry& entry : *present) {
    if (!is_others(entry.path)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        entry.path, " is another run's", last.empty() ? "" : ", of ", last,
        ", which took --checkpoint-dir=", directory_,
        " when this job's was removed, or moved. Move its checkpoints away"));
  }
  if (file->has_value()) {
    WriteHolder(holder_, **file);
    RemoveIncomplete(directory_);
    file_.emplace(**std::move(file));
  } else {
    file_.reset();
  }
  lost_ = false;
  return absl::OkStatus();
}

}  // namespace psring
