#include "python/capi/rate_check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

constexpr int64_t kEvery = 64;  // steps

bool IsDue(int64_t steps) {
  return steps % kEvery == 0 || (steps < kEvery && (steps & (steps - 1)) == 0);
}

// "HASH RATE RATE ...": of all steps, and of the last.
std::string Told(uint64_t all, absl::Span<const double> rates) {
  std::string text = absl::StrCat(all);
  for (const double rate : rates)
    absl::StrAppendFormat(&text, " %.9g", static_cast<float>(rate));
  return text;
}

// "0.05" of "0.0500000007".
std::string Short(absl::string_view rate) {
  float value = 0;
  return absl::SimpleAtof(rate, &value) ? absl::StrFormat("%.6g", value)
                                        : std::string(rate);
}

// "0.05, there 0.1": of the last step, or empty where they differed before.
std::string Difference(const std::string& first, const std::string& other) {
  const std::vector<absl::string_view> ours = absl::StrSplit(first, ' ');
  const std::vector<absl::string_view> theirs = absl::StrSplit(other, ' ');
  for (size_t i = 1; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i] == theirs[i]) continue;
    const std::string here = Short(theirs[i]);
    const std::string there = Short(ours[i]);
    return here == there ? absl::StrCat(theirs[i], ", there ", ours[i])
                         : absl::StrCat(here, ", there ", there);
  }
  return "";
}

}  // namespace

absl::Status RateCheck::AfterStep(absl::Span<const double> rates,
                                  Time deadline) {
  // As exact as the update: hosts may compute a schedule with other libraries.
  for (const double rate : rates) {
    all_.Add(uint64_t{absl::bit_cast<uint32_t>(static_cast<float>(rate))});
  }
  if (!IsDue(++steps_)) return absl::OkStatus();
  const auto told = member_.Gather(absl::StrCat("rates of ", id_),
                                   Told(all_.value(), rates), deadline);
  if (!told.ok()) return told.status();
  for (size_t i = 1; i < told->size(); ++i) {
    if ((*told)[i] == told->front()) continue;
    const std::string difference = Difference(told->front(), (*told)[i]);
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(member_.job().workers(static_cast<int>(i))),
                     " had other learning rates or momenta than worker 0 ",
                     difference.empty() ? "in an earlier step"
                                        : absl::StrCat("(", difference, ")"),
                     ". With update=\"fused\" a schedule does the same on all "
                     "ranks: give it "
                     "what is equal there, such as the mean of the losses"));
  }
  return absl::OkStatus();
}

}  // namespace psring
