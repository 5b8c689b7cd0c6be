#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lab/bench/operation.h"
#include "lab/bench/pattern.h"

namespace psring {
namespace {

class AllReduceOperation : public Operation {
 public:
  AllReduceOperation(RankJob& job, int64_t num_elements, float scale)
      : job_(job), num_elements_(num_elements), scale_(scale) {}

  absl::Status Prepare(int64_t iteration) override {
    FillPattern(job_.rank(), iteration, 0, Data());
    std::fill(Guard().begin(), Guard().end(),
              std::numeric_limits<float>::quiet_NaN());
    return absl::OkStatus();
  }

  absl::Status Run() override { return job_.AllReduce(Data(), scale_); }

  absl::Status Verify(int64_t iteration, int64_t runs) override {
    const int64_t wrong =
        FindWrongSum(job_.num_ranks(), iteration, runs, scale_, Data());
    if (wrong >= 0) {
      return absl::DataLossError(absl::StrCat(
          "iteration ", iteration, ", ", runs, " run(s): element ", wrong,
          " of ", num_elements_, " is ", Data()[wrong],
          ", which is not what summing over the ranks makes of it"));
    }
    const bool untouched = std::all_of(Guard().begin(), Guard().end(),
                                       [](float x) { return std::isnan(x); });
    return untouched ? absl::OkStatus()
                     : absl::DataLossError(absl::StrCat(
                           "iteration ", iteration,
                           ": elements behind the buffer were written"));
  }

 private:
  absl::Span<float> Data() {
    return {job_.model().gradients.data(), static_cast<size_t>(num_elements_)};
  }
  absl::Span<float> Guard() {
    return job_.model().gradients.span().subspan(num_elements_);
  }

  RankJob& job_;
  const int64_t num_elements_;
  const float scale_;
};

}  // namespace

std::unique_ptr<Operation> MakeAllReduce(RankJob& job, int64_t num_elements,
                                         float scale) {
  return std::make_unique<AllReduceOperation>(job, num_elements, scale);
}

}  // namespace psring
