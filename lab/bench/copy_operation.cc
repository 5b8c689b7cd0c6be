#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/stream_copy.h"
#include "lab/bench/operation.h"
#include "lab/bench/pattern.h"

namespace psring {
namespace {

class CopyOperation : public Operation {
 public:
  CopyOperation(FlatBuffer from, FlatBuffer to)
      : from_(std::move(from)), to_(std::move(to)) {}

  absl::Status Prepare(int64_t iteration) override {
    FillPattern(/*rank=*/0, iteration, 0, from_.span());
    std::fill(to_.span().begin(), to_.span().end(),
              std::numeric_limits<float>::quiet_NaN());
    return absl::OkStatus();
  }

  absl::Status Run() override {
    StreamCopy(to_.data(), from_.data(), from_.size());
    return absl::OkStatus();
  }

  absl::Status Verify(int64_t iteration, int64_t runs) override {
    const int64_t wrong = FindWrongSum(1, iteration, runs, 1.0f, to_.span());
    return wrong < 0 ? absl::OkStatus()
                     : absl::DataLossError(absl::StrCat("iteration ", iteration,
                                                        ": element ", wrong,
                                                        " was not copied"));
  }

 private:
  FlatBuffer from_;
  FlatBuffer to_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakeCopy(int64_t num_elements) {
  auto from = FlatBuffer::Create(num_elements);
  if (!from.ok()) return from.status();
  auto to = FlatBuffer::Create(num_elements);
  if (!to.ok()) return to.status();
  return std::make_unique<CopyOperation>(*std::move(from), *std::move(to));
}

}  // namespace psring
