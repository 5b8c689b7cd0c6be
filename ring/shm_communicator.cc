#include "ring/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/clock.h"
#include "common/model/reduce.h"
#include "common/optim/fused_update.h"

namespace psring {
namespace {

// Up to here every rank sums everything.
constexpr size_t kSmallElements = 2048;

using Pointers = absl::InlinedVector<float*, 16>;

}  // namespace

ShmCommunicator::ShmCommunicator(std::unique_ptr<LocalGroup> group, int threads)
    : group_(std::move(group)), team_(threads) {}

absl::Status ShmCommunicator::Staged(absl::Span<float> data, Time deadline,
                                     absl::FunctionRef<void(Range)> use) {
  const int64_t end = static_cast<int64_t>(data.size());
  // Data without elements is a collective too.
  for (int64_t begin = 0; begin == 0 || begin < end;
       begin += WorkerArena::kStagingElements) {
    const Range range{begin,
                      std::min(begin + WorkerArena::kStagingElements, end)};
    if (!range.empty()) {
      std::memcpy(group_->NextWindow(), data.data() + range.begin,
                  range.size() * sizeof(float));
    }
    if (absl::Status s = group_->EnterStaged(range.size(), deadline); !s.ok()) {
      return s;
    }
    use(range);
  }
  return absl::OkStatus();
}

void ShmCommunicator::SumInto(Range whole, Range range, int64_t base,
                              float scale, absl::Span<float* const> outs) {
  TimelineSpan span(group_->track(), "sum");
  team_.Run([&](int part) {
    const Range mine = NearEqualPart(range, team_.size(), part);
    if (mine.empty()) return;
    absl::InlinedVector<const void*, 16> inputs;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(group_->data(r) + (mine.begin - base));
    }
    Pointers to;
    for (float* out : outs) to.push_back(out + mine.begin);
    CanonicalSumToAll(whole, mine, inputs, scale, to);
  });
}

absl::Status ShmCommunicator::AllReduce(absl::Span<float> data, float scale,
                                        Time deadline) {
  if (size() == 1 && scale == 1.0f) return absl::OkStatus();
  const Range whole{0, static_cast<int64_t>(data.size())};
  if (data.size() <= kSmallElements || !group_->Shares(data)) {
    float* const out = data.data();
    return Staged(data, deadline, [&](Range range) {
      SumInto(whole, range, range.begin, scale, {&out, 1});
    });
  }
  if (absl::Status s = group_->EnterShared(data, deadline); !s.ok()) return s;
  Pointers outs;
  for (int r = 0; r < size(); ++r) outs.push_back(group_->data(r));
  SumInto(whole, NearEqualPart(whole, size(), rank()), 0, scale, outs);
  return group_->Leave(deadline);
}

absl::Status ShmCommunicator::ReduceAndUpdate(
    absl::Span<float> gradients, float scale, const Optimizer& optimizer,
    int64_t count, absl::Span<const double> rates, float* parameters,
    absl::Span<float* const> slots, int64_t origin, Time deadline) {
  if (absl::Status s = group_->EnterShared(gradients, deadline); !s.ok()) {
    return s;
  }
  const Range bucket{0, static_cast<int64_t>(gradients.size())};
  const Range slice = NearEqualPart(bucket, size(), rank());
  TimelineSpan span(group_->track(), "update");
  team_.Run([&](int part) {
    const Range mine = NearEqualPart(slice, team_.size(), part);
    if (mine.empty()) return;
    absl::InlinedVector<const void*, 16> inputs;
    Pointers copies;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(group_->data(r) + mine.begin);
      if (r == rank()) continue;
      copies.push_back(group_->Counterpart(r, parameters) + mine.begin);
    }
    Pointers state;
    for (float* slot : slots) state.push_back(slot + mine.begin);
    SumAndUpdate(optimizer, bucket, mine, inputs, scale, count, rates,
                 parameters + mine.begin, state, copies, origin);
  });
  span.End();
  return group_->Leave(deadline);
}

absl::Status ShmCommunicator::AllGather(absl::Span<float> data, Time deadline) {
  const Range whole{0, static_cast<int64_t>(data.size())};
  // Copies the others' slices, as far as they lie in `range`.
  const auto copy = [&](Range range) {
    TimelineSpan span(group_->track(), "copy");
    for (int r = 0; r < size(); ++r) {
      const Range part = Intersect(NearEqualPart(whole, size(), r), range);
      if (r == rank() || part.empty()) continue;
      std::memcpy(data.data() + part.begin,
                  group_->data(r) + (part.begin - range.begin),
                  part.size() * sizeof(float));
    }
  };
  if (!group_->Shares(data)) return Staged(data, deadline, copy);
  if (absl::Status s = group_->EnterShared(data, deadline); !s.ok()) return s;
  copy(whole);
  return group_->Leave(deadline);
}

absl::Status ShmCommunicator::Broadcast(absl::Span<float> data, int root,
                                        Time deadline) {
  const auto copy = [&](Range range) {
    TimelineSpan span(group_->track(), "copy");
    if (rank() == root || range.empty()) return;
    std::memcpy(data.data() + range.begin, group_->data(root),
                range.size() * sizeof(float));
  };
  if (!group_->Shares(data)) return Staged(data, deadline, copy);
  if (absl::Status s = group_->EnterShared(data, deadline); !s.ok()) return s;
  copy({0, static_cast<int64_t>(data.size())});
  return group_->Leave(deadline);
}

}  // namespace psring
