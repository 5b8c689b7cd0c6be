#include "worker/batch_norm_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "common/log.h"

namespace psring {
namespace {

// A variance of fewer values is far from the data's.
constexpr int64_t kEnoughValues = 8;

}  // namespace

absl::Status CheckBatchNorm(const Classifier& model, const proto::JobSpec& spec,
                            int64_t smallest_batch, int num_workers,
                            bool warns) {
  const int64_t together = spec.sync_batch_norm() ? num_workers : 1;
  const int64_t values = model.FewestNormalised() * smallest_batch * together;
  if (model.FewestNormalised() == 0 || values >= kEnoughValues) {
    return absl::OkStatus();
  }
  const std::string what = absl::StrCat(
      spec.model(), "'s batch norm takes the mean of ",
      Counted(values, "value"), " where a batch has ",
      Counted(smallest_batch, "image"),
      smallest_batch == spec.batch_size()
          ? ". Choose a larger --batch-size"
          : ", as an epoch's last has. --drop-last leaves it out, or choose "
            "another --batch-size");
  if (values == 1) return absl::InvalidArgumentError(what);
  if (warns) LogWarning("$0", what);
  return absl::OkStatus();
}

}  // namespace psring
