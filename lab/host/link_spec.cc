#include "lab/host/link_spec.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lab/host/units.h"

namespace psring {

std::vector<double> LinkSpec::RatesOf(int workers, int servers) const {
  std::vector<double> rates(workers + servers,
                            worker < 0 ? bits_per_s : kFastBitsPerS);
  if (worker >= 0) rates[worker] = bits_per_s;
  return rates;
}

absl::StatusOr<LinkSpec> ParseLink(absl::string_view text, int workers) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  LinkSpec spec;
  const bool one = parts.size() == 3 && parts[0] == "worker" &&
                   absl::SimpleAtoi(parts[1], &spec.worker) && spec.worker >= 0;
  const auto rate = ParseRate(parts.back());
  if (!rate.ok() || (!one && parts.size() != 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--link: \"", text,
                     "\" is neither a RATE, such as 1gbit, nor "
                     "worker:RANK:RATE"));
  }
  if (spec.worker >= workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--link=", text, ": there is no worker ", spec.worker,
                     " among ", workers));
  }
  spec.bits_per_s = *rate;
  return spec;
}

}  // namespace psring
