#include "worker/collective_statistics.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "client/job_collectives.h"
#include "worker/torch/torch_error.h"

namespace psring {
namespace {

// They come one after the other, so one name is enough.
constexpr char kName[] = "batch norm";

// What ends them sooner: a lost process, a deadline.
constexpr absl::Duration kLook = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveStatistics>>
CollectiveStatistics::Connect(JobClient& job, absl::Duration step_timeout,
                              Track* track) {
  auto collectives = ConnectCollectives(
      job, {.step_timeout = step_timeout,
            .ranks_left = [&job] { return job.member().workers_left(); }});
  if (!collectives.ok()) return collectives.status();
  return std::unique_ptr<CollectiveStatistics>(new CollectiveStatistics(
      *std::move(collectives), job.member().activities().own(), track));
}

std::vector<float> CollectiveStatistics::Gather(absl::Span<const float> mine) {
  auto all = TryGather(mine);
  if (!all.ok()) throw StatusError(all.status());
  return *std::move(all);
}

absl::StatusOr<std::vector<float>> CollectiveStatistics::TryGather(
    absl::Span<const float> mine) {
  const TimelineSpan span(track_, "statistics");
  const WaitingForOthers waiting(trainer_, "the statistics of batch norm");
  const auto handle = collectives_->AllGather(
      kName, mine.data(), static_cast<int64_t>(mine.size() * sizeof(float)));
  if (!handle.ok()) return handle.status();
  auto all = AwaitResult(*handle);
  absl::Status released = collectives_->Release(*handle);
  if (all.ok() && !released.ok()) return released;
  return all;
}

absl::StatusOr<std::vector<float>> CollectiveStatistics::AwaitResult(
    int64_t handle) {
  absl::StatusOr<bool> done = false;
  while (done.ok() && !*done) done = collectives_->Wait(handle, kLook);
  if (!done.ok()) return done.status();
  const auto sizes = collectives_->Sizes(handle);
  if (!sizes.ok()) return sizes.status();
  const int64_t bytes =
      std::accumulate(sizes->begin(), sizes->end(), int64_t{0});
  if (bytes != sizes->front() * static_cast<int64_t>(sizes->size())) {
    return absl::InternalError("workers normalise layers of different widths");
  }
  std::vector<float> all(bytes / sizeof(float));
  if (absl::Status s = collectives_->Result(handle, all.data(), bytes);
      !s.ok()) {
    return s;
  }
  return all;
}

}  // namespace psring
