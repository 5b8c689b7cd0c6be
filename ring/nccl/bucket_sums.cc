#include "ring/nccl/bucket_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ring/collective_plan.h"

namespace psring {

BucketSums::BucketSums(NcclCommunicator& communicator, DeviceModel& model,
                       const proto::Welcome& job, absl::Duration step_timeout,
                       const NcclTracks& tracks, Then then)
    : communicator_(communicator),
      model_(model),
      job_(job),
      step_timeout_(step_timeout),
      tracks_(tracks),
      then_(std::move(then)),
      ready_(model.layout.num_buckets()) {}

absl::Status BucketSums::Submit(int bucket, int64_t step) {
  if (absl::Status s = communicator_.Look(); !s.ok()) return s;
  if (bucket < 0 || bucket >= model_.layout.num_buckets() ||
      ready_[bucket].has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, ": bucket ", bucket, " of ",
                     model_.layout.num_buckets(), " is submitted out of turn"));
  }
  communicator_.SetComputeStream(model_.compute);
  const absl::StatusOr<Event> ready = communicator_.RecordReady();
  if (!ready.ok()) return ready.status();
  ready_[bucket] = *ready;
  submitted_.push_back(bucket);
  LaunchReady(step);
  return absl::OkStatus();
}

absl::Status BucketSums::Agree(int64_t step, Time deadline) {
  TimelineSpan span(tracks_.trainer, "agree", {.step = step});
  const auto plans = communicator_.Gather(
      absl::StrCat("plan/", ++num_agreed_),
      PlanText(model_.layout, submitted_, communicator_.sequence() + 1),
      deadline);
  if (!plans.ok()) return plans.status();
  const auto places = AgreeOnPlan(*plans, job_.rank(), job_);
  if (!places.ok()) return places.status();
  for (const int place : *places) order_.push_back(submitted_[place]);
  return absl::OkStatus();
}

void BucketSums::LaunchReady(int64_t step) {
  const int n = job_.workers_size();
  while (num_launched_ < order_.size()) {
    const int bucket = order_[num_launched_];
    if (!ready_[bucket].has_value()) return;
    bytes_ += 2 * (n - 1) * model_.layout.bucket(bucket).size() *
              static_cast<int64_t>(sizeof(float)) / n;
    last_launch_ =
        launches_.Post([this, bucket, ready = *ready_[bucket], step] {
          return Launch(bucket, ready, step);
        });
    ++num_launched_;
  }
}

absl::Status BucketSums::Launch(int bucket, Event ready, int64_t step) {
  const Range range = model_.layout.bucket(bucket);
  TimelineSpan span(
      tracks_.launches, "enqueue",
      {.step = step,
       .bytes = range.size() * static_cast<int64_t>(sizeof(float)),
       .bucket = bucket});
  const absl::Span<float> gradients =
      model_.gradients.span().subspan(range.begin, range.size());
  return communicator_.EnqueueAllReduce(
      gradients, absl::StrCat("allreduce of bucket ", bucket, ", step ", step),
      ready, step_timeout_, [&] { return then_(bucket, step); });
}

absl::Status BucketSums::LaunchAll(int64_t step, Time deadline) {
  if (absl::Status s = communicator_.Look(); !s.ok()) return s;
  if (static_cast<int>(submitted_.size()) != model_.layout.num_buckets()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, " ends with ", submitted_.size(),
                     " buckets of ", model_.layout.num_buckets()));
  }
  if (order_.empty()) {
    if (absl::Status s = Agree(step, deadline); !s.ok()) return s;
    LaunchReady(step);
  }
  if (absl::Status s = launches_.Await(last_launch_); !s.ok()) return s;
  for (auto& ready : ready_) ready.reset();
  submitted_.clear();
  num_launched_ = 0;
  return absl::OkStatus();
}

}  // namespace psring
