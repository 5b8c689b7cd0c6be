// What a command that starts a job's processes hands down to them: where the
// job's key is, or that there is none. A key that lies in a file is named, as a
// descriptor does not pass programs that close what they do not know.
#ifndef PSRING_LAB_HOST_JOB_KEY_H_
#define PSRING_LAB_HOST_JOB_KEY_H_

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/cluster/security.h"
#include "common/net/key_file.h"
#include "lab/host/child.h"

namespace psring {

// Lives until the last process has been started.
class JobKey {
 public:
  static absl::StatusOr<JobKey> Create(const Security& security);

  // So that the command inherits it, whatever its environment would say.
  void GiveTo(Command& command) const;

 private:
  explicit JobKey(const Security& security) : security_(security) {}

  Security security_;
  std::optional<KeyDescriptor> key_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_JOB_KEY_H_
