#include "common/optim/rates.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/optim/optimizer.h"

namespace psring {
namespace {

absl::Status CheckRate(double rate) {
  if (rate >= 0 && std::isfinite(rate)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a learning rate of ", rate, ": it is 0 or more"));
}

absl::Status CheckMomentum(double momentum) {
  if (momentum >= 0 && momentum < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a momentum of ", momentum, ": it is from 0 on and below 1"));
}

}  // namespace

int NumGroups(const proto::JobSpec& spec) {
  return std::max(spec.groups_size(), 1);
}

int NumRates(const proto::JobSpec& spec) {
  if (!spec.rates_from_workers()) return 0;
  return NumGroups(spec) * (spec.momenta_from_workers() ? 2 : 1);
}

std::vector<double> FirstRates(const proto::JobSpec& spec) {
  std::vector<double> rates;
  const auto settings = [&](int group) -> const proto::OptimizerSettings& {
    return spec.groups().empty() ? spec.optimizer() : spec.groups(group);
  };
  for (int i = 0; i < NumRates(spec); ++i) {
    const int groups = NumGroups(spec);
    rates.push_back(i < groups ? settings(i).lr()
                               : MomentumOf(settings(i - groups)));
  }
  return rates;
}

absl::Status CheckRates(const proto::JobSpec& spec,
                        absl::Span<const double> rates) {
  const int groups = NumGroups(spec);
  if (static_cast<int>(rates.size()) != NumRates(spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat(rates.size(), " learning rates",
                     spec.momenta_from_workers() ? " and momenta" : "",
                     " where ", NumRates(spec), " are due"));
  }
  absl::Status status;
  for (int i = 0; i < static_cast<int>(rates.size()); ++i) {
    status.Update(i < groups ? CheckRate(rates[i]) : CheckMomentum(rates[i]));
  }
  return status;
}

}  // namespace psring
