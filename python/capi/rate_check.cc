#include "python/capi/rate_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/cluster/membership.h"

namespace psring {
namespace {

constexpr int64_t kEvery = 64;  // steps

bool IsDue(int64_t steps) {
  return steps % kEvery == 0 || (steps < kEvery && (steps & (steps - 1)) == 0);
}

// "HASH RATE RATE ...": of all steps, and of the last.
std::string Told(uint64_t all, absl::Span<const double> rates) {
  std::string text = absl::StrCat(all);
  for (const double rate : rates) absl::StrAppendFormat(&text, " %.9g", rate);
  return text;
}

// "0.05, there 0.1": of the last step, or empty where they differed before.
std::string Difference(const std::string& first, const std::string& other) {
  const std::vector<absl::string_view> ours = absl::StrSplit(first, ' ');
  const std::vector<absl::string_view> theirs = absl::StrSplit(other, ' ');
  for (size_t i = 1; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i] != theirs[i]) {
      return absl::StrCat(theirs[i], ", there ", ours[i]);
    }
  }
  return "";
}

}  // namespace

absl::Status RateCheck::AfterStep(absl::Span<const double> rates,
                                  Time deadline) {
  all_.Add(absl::string_view(reinterpret_cast<const char*>(rates.data()),
                             rates.size() * sizeof(double)));
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
