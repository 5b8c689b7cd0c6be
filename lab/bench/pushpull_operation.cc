#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/optim/optimizer.h"
#include "lab/bench/operation.h"
#include "lab/bench/pattern.h"

namespace psring {
namespace {

// What is expected is computed and compared a run of elements at a time.
constexpr int64_t kRun = 16 * 1024;

// The parameters must end up, bit by bit, where this rank's own optimizer takes
// its own copy of them.
class PushPullOperation : public Operation {
 public:
  static absl::StatusOr<std::unique_ptr<Operation>> Create(
      RankJob& job, const proto::OptimizerSettings& settings) {
    auto optimizer = Optimizer::Create(settings);
    if (!optimizer.ok()) return optimizer.status();
    std::unique_ptr<PushPullOperation> self(
        new PushPullOperation(job, *std::move(optimizer)));
    if (absl::Status s = self->JoinWithFirstParameters(); !s.ok()) return s;
    return self;
  }

  absl::Status Prepare(int64_t iteration) override {
    FlatModel& model = job_.model();
    FillPattern(job_.rank(), iteration, 0, model.gradients.span());
    std::fill(model.parameters.span().begin(), model.parameters.span().end(),
              std::numeric_limits<float>::quiet_NaN());
    return absl::OkStatus();
  }

  absl::Status Run() override {
    for (int b = 0; b < job_.model().layout.num_buckets(); ++b) {
      if (absl::Status s = job_.exchange().Submit(b); !s.ok()) return s;
    }
    return job_.exchange().Finish(job_.Deadline());
  }

  absl::Status Verify(int64_t iteration, int64_t runs) override {
    for (int64_t run = 0; run < runs; ++run) UpdateExpected(iteration);
    return Compare(absl::StrCat("iteration ", iteration));
  }

 private:
  PushPullOperation(RankJob& job, Optimizer optimizer)
      : job_(job), optimizer_(std::move(optimizer)) {}

  absl::Status JoinWithFirstParameters() {
    const int64_t size = job_.model().parameters.size();
    for (int i = 0; i <= optimizer_.num_slots(); ++i) {
      auto buffer = FlatBuffer::Create(size);
      if (!buffer.ok()) return buffer.status();
      (i == 0 ? expected_ : slots_.emplace_back()) = *std::move(buffer);
    }
    FillPattern(/*rank=*/0, /*iteration=*/-1, 0, expected_.span());
    absl::Span<float> parameters = job_.model().parameters.span();
    if (job_.rank() == 0) {
      std::copy(expected_.span().begin(), expected_.span().end(),
                parameters.begin());
    }
    if (absl::Status s = job_.exchange().Join({}, job_.Deadline()); !s.ok()) {
      return s;
    }
    return Compare("the first parameters");
  }

  void UpdateExpected(int64_t iteration) {
    std::vector<float> gradient(kRun);
    const float scale = 1.0f / static_cast<float>(job_.num_ranks());
    for (int64_t begin = 0; begin < expected_.size(); begin += kRun) {
      const int64_t size = std::min(kRun, expected_.size() - begin);
      FillPatternSum(job_.num_ranks(), iteration, scale, begin,
                     {gradient.data(), static_cast<size_t>(size)});
      std::vector<float*> slots;
      for (FlatBuffer& slot : slots_) slots.push_back(slot.data() + begin);
      optimizer_.Update(iteration + 1, optimizer_.settings().lr(),
                        gradient.data(), expected_.data() + begin, slots, size);
    }
  }

  absl::Status Compare(const std::string& what) {
    const float* values = job_.model().parameters.data();
    if (std::memcmp(values, expected_.data(),
                    expected_.size() * sizeof(float)) == 0) {
      return absl::OkStatus();
    }
    int64_t i = 0;
    while (i + 1 < expected_.size() && values[i] == expected_.data()[i]) ++i;
    return absl::DataLossError(absl::StrCat(what, ": parameter ", i, " of ",
                                            expected_.size(), " is ", values[i],
                                            ", not ", expected_.data()[i]));
  }

  RankJob& job_;
  const Optimizer optimizer_;
  FlatBuffer expected_;
  std::vector<FlatBuffer> slots_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakePushPull(
    RankJob& job, const proto::OptimizerSettings& optimizer) {
  return PushPullOperation::Create(job, optimizer);
}

}  // namespace psring
