// What a script's workers may change between updates: the learning rate of each
// group of tensors, and where the job takes them (JobSpec's
// momenta_from_workers) behind them each group's momentum, which is beta1 of
// adam and adamw.
#ifndef PSRING_COMMON_OPTIM_RATES_H_
#define PSRING_COMMON_OPTIM_RATES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "protos/cluster.pb.h"

namespace psring {

// The groups of tensors with settings of their own; at least one.
int NumGroups(const proto::JobSpec& spec);

// How many numbers every push brings; none where the job's plan knows the
// rates.
int NumRates(const proto::JobSpec& spec);

// Those that the job's settings say.
std::vector<double> FirstRates(const proto::JobSpec& spec);

// INVALID_ARGUMENT names the number that is wrong: how many, a rate below 0, a
// momentum outside of [0, 1).
absl::Status CheckRates(const proto::JobSpec& spec,
                        absl::Span<const double> rates);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_RATES_H_
