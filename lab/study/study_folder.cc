#include "lab/study/study_folder.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/shallow_json.h"
#include "lab/page/report_files.h"
#include "lab/page/report_parts.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kManifest[] = "study.json";
constexpr char kRuns[] = "runs";
constexpr char kScratch[] = "scratch";
constexpr char kLock[] = ".lock";
constexpr int kMaxDepth = 16;  // of JSON; ours is not as deep

absl::Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  const std::string message = absl::StrCat(
      "cannot make the folder ", path.string(), ": ", error.message());
  return error == std::errc::no_space_on_device
             ? absl::ResourceExhaustedError(
                   absl::StrCat(message, ". Free space there"))
             : absl::PermissionDeniedError(message);
}

// NOT_FOUND where there is no such file.
absl::StatusOr<json> ReadJson(const std::string& path) {
  // Its stream opens, and throws when it is read.
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::DataLossError("a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("it is missing");
  const std::string text{std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>()};
  json value = ParseShallowObject(text, kMaxDepth);
  if (value.is_null()) return absl::DataLossError("it is no JSON object");
  return value;
}

// What a process that was killed has left of WriteReportFile.
void RemoveTemporaries(const fs::path& folder) {
  static const std::regex& ours =
      *new std::regex(R"((study|report|run-\d+)\.(json|html)\.\d+\.tmp)");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (std::regex_match(entry.path().filename().string(), ours)) {
      fs::remove(entry.path(), ignored);
    }
  }
}

// What a study removes must be a study's.
absl::Status CheckNobodysElse(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kManifest, ignored)) return absl::OkStatus();
  for (const char* name : {kRuns, kScratch}) {
    if (!fs::exists(folder / name, ignored) ||
        fs::is_empty(folder / name, ignored)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "--out=", folder.string(), " has a folder ", name,
        " that is no study's. Choose another folder, which psring makes"));
  }
  return absl::OkStatus();
}

// The same study's, or the first.
absl::Status TakeManifest(const fs::path& folder, const StudySetup& setup) {
  const std::string path = folder / kManifest;
  const auto manifest = ReadJson(path);
  if (absl::IsNotFound(manifest.status())) {
    return WriteReportFile(folder, kManifest,
                           DumpJson(ManifestJson(setup), 1) + "\n");
  }
  if (!manifest.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a study's: ", manifest.status().message()));
  }
  const absl::Status same = CheckManifest(*manifest, setup);
  if (same.ok()) return same;
  return absl::FailedPreconditionError(absl::StrCat(
      "--out=", folder.string(), " holds another study: ", same.message(),
      ". Start it as it was to resume it, choose another folder with --out,"
      " or remove this one"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StudyFolder>> StudyFolder::Open(
    const std::string& path, const StudySetup& setup) {
  if (auto s = CheckNobodysElse(path); !s.ok()) return s;
  if (auto s = MakeFolder(fs::path(path) / kRuns); !s.ok()) return s;
  // Whoever may read a file may lock it.
  auto lock = File::Open(fs::path(path) / kLock, O_RDWR | O_CREAT, 0600);
  if (!lock.ok()) return lock.status();
  const absl::Status locked = lock->Lock();
  if (absl::IsUnavailable(locked)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another psring compare uses --out=", path,
                     ". Wait for it, or choose another folder"));
  }
  if (!locked.ok()) return locked;
  if (auto s = TakeManifest(path, setup); !s.ok()) return s;
  RemoveTemporaries(path);
  RemoveTemporaries(fs::path(path) / kRuns);
  return std::unique_ptr<StudyFolder>(new StudyFolder(path, *std::move(lock)));
}

std::string StudyFolder::RunPath(size_t index) const {
  return fs::path(path_) / kRuns / absl::StrFormat("run-%03d.json", index);
}

absl::StatusOr<std::vector<std::optional<RunResult>>> StudyFolder::FinishedRuns(
    const std::vector<Point>& points) const {
  std::vector<std::optional<RunResult>> runs(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string path = RunPath(i);
    const auto value = ReadJson(path);
    if (absl::IsNotFound(value.status())) continue;
    auto run = value.ok() ? RunFromJson(*value) : value.status();
    absl::Status s = run.status();
    if (s.ok() && run->point != points[i]) {
      s = absl::DataLossError("it holds another run");
    }
    if (!s.ok()) {
      return absl::DataLossError(absl::StrCat(
          path, ": ", s.message(), ". Remove it to make that run again"));
    }
    runs[i] = *std::move(run);
  }
  return runs;
}

absl::Status StudyFolder::Keep(size_t index, const RunResult& run) {
  const fs::path path = RunPath(index);
  return WriteReportFile(path.parent_path(), path.filename(),
                         DumpJson(ToJson(run), -1) + "\n");
}

absl::StatusOr<std::string> StudyFolder::MakeScratch() {
  RemoveScratch();
  const std::string path = fs::path(path_) / kScratch;
  if (auto s = MakeFolder(path); !s.ok()) return s;
  return path;
}

void StudyFolder::RemoveScratch() {
  std::error_code ignored;
  fs::remove_all(fs::path(path_) / kScratch, ignored);
}

}  // namespace psring
