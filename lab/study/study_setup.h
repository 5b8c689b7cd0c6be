// What a study is made with: what its reader must know to make it again, and
// what must not change while it is made.
#ifndef PSRING_LAB_STUDY_STUDY_SETUP_H_
#define PSRING_LAB_STUDY_STUDY_SETUP_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lab/host/machine.h"

namespace psring {

struct StudySetup {
  std::string command;  // that makes the same report again
  // Every flag with its value, given or not; under "--" what every worker got.
  std::vector<std::pair<std::string, std::string>> flags;
  // What else the runs depend on: the files that they run, a script's
  // variables, the device: {"the file train.py", "CRC-32 0badcafe"}.
  std::map<std::string, std::string> inputs;
  int threads_per_worker = 1;
  std::string created;  // date and time
  std::string commit;
  std::string libtorch;
  std::string zeromq;
  Machine machine;

  // The value of a flag; aborts without such a flag.
  const std::string& Flag(const std::string& name) const;
};

nlohmann::json SetupJson(const StudySetup& setup);

// The manifest that a study's folder holds: see study_folder.h.
nlohmann::json ManifestJson(const StudySetup& setup);

// FAILED_PRECONDITION names what in `manifest`, an earlier setup's, differs
// from `setup`: a flag, the build or the machine. DATA_LOSS where it is not a
// manifest.
absl::Status CheckManifest(const nlohmann::json& manifest,
                           const StudySetup& setup);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_SETUP_H_
