#include "common/cluster/worker_sum.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace psring {

absl::Status SumOverWorkers(Member& member, const std::string& name,
                            absl::Span<double> values, Time deadline) {
  const std::string mine(reinterpret_cast<const char*>(values.data()),
                         values.size() * sizeof(double));
  const auto all = member.Gather(name, mine, deadline);
  if (!all.ok()) return all.status();
  for (double& value : values) value = 0.0;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const std::string& theirs = (*all)[rank];
    if (theirs.size() != mine.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": worker ", rank, " sums ", theirs.size() / sizeof(double),
          " values, this one ", values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      double value;
      std::memcpy(&value, theirs.data() + i * sizeof(double), sizeof(double));
      values[i] += value;
    }
  }
  return absl::OkStatus();
}

}  // namespace psring
