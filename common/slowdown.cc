#include "common/slowdown.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/split_mix.h"
#include "common/uniform.h"

namespace psring {
namespace {

constexpr double kMaxFactor = 1000;

// "x3"
bool ParseFactor(absl::string_view text, double* factor) {
  return absl::ConsumePrefix(&text, "x") && absl::SimpleAtod(text, factor) &&
         *factor >= 1 && *factor <= kMaxFactor;
}

}  // namespace

absl::StatusOr<Slowdown> Slowdown::Create(absl::Span<const std::string> texts,
                                          uint64_t seed) {
  Slowdown slowdown;
  slowdown.seed_ = seed;
  for (const std::string& text : texts) {
    Fault fault;
    fault.text = text;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
    bool good = parts.size() == 3 && ParseFactor(parts[2], &fault.factor);
    if (good && parts[0] == "worker") {
      good = absl::SimpleAtoi(parts[1], &fault.worker) && fault.worker >= 0;
    } else if (good && parts[0] == "random") {
      absl::string_view p = parts[1];
      good = absl::ConsumePrefix(&p, "p=") &&
             absl::SimpleAtod(p, &fault.probability) && fault.probability > 0 &&
             fault.probability <= 1;
    } else {
      good = false;
    }
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("--slow: \"", text,
                       "\" is neither worker:RANK:xFACTOR nor "
                       "random:p=PROBABILITY:xFACTOR, with a factor from 1 to ",
                       kMaxFactor));
    }
    slowdown.faults_.push_back(std::move(fault));
  }
  return slowdown;
}

absl::Status Slowdown::CheckWorkers(int num_workers) const {
  for (const Fault& fault : faults_) {
    if (fault.worker < num_workers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--slow=", fault.text, ": there is no worker ",
                     fault.worker, " in a job of ", num_workers));
  }
  return absl::OkStatus();
}

double Slowdown::FactorOf(int worker, int64_t step) const {
  double factor = 1;
  for (size_t i = 0; i < faults_.size(); ++i) {
    const Fault& fault = faults_[i];
    if (fault.worker >= 0 && fault.worker != worker) continue;
    uint64_t mixed = seed_;
    for (const uint64_t part :
         {static_cast<uint64_t>(i), static_cast<uint64_t>(worker),
          static_cast<uint64_t>(step)}) {
      mixed = SplitMix64(mixed ^ part).Next();
    }
    if (Uniform(mixed) < fault.probability) factor *= fault.factor;
  }
  return factor;
}

}  // namespace psring
