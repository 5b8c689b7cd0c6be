// A study's results on disk, so that it can be stopped at any moment and
// resumed:
//   study.json         the manifest: every flag, machine, commit
//   runs/run-004.json  a finished run: see RunResult's ToJson
//   scratch/           what the run under way writes
// A file appears whole or not at all, and is on the disk when it does.
#ifndef PSRING_LAB_STUDY_STUDY_FOLDER_H_
#define PSRING_LAB_STUDY_STUDY_FOLDER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/state/file.h"
#include "lab/study/run_result.h"
#include "lab/study/study_setup.h"

namespace psring {

class StudyFolder {
 public:
  // Makes the folder, or opens one that holds a study with the same setup.
  // FAILED_PRECONDITION says what differs, or that another process uses it.
  static absl::StatusOr<std::unique_ptr<StudyFolder>> Open(
      const std::string& path, const StudySetup& setup);

  // The finished ones of `points`, in their places. DATA_LOSS names a file that
  // is not the run that its name promises.
  absl::StatusOr<std::vector<std::optional<RunResult>>> FinishedRuns(
      const std::vector<Point>& points) const;

  absl::Status Keep(size_t index, const RunResult& run);

  // An empty folder for the run under way; what was in it is gone.
  absl::StatusOr<std::string> MakeScratch();
  void RemoveScratch();

 private:
  StudyFolder(std::string path, File lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string RunPath(size_t index) const;

  const std::string path_;
  const File lock_;  // held while this lives
};

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_FOLDER_H_
