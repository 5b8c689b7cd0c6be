#include "lab/bench/rank_job.h"

#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/layout.h"
#include "common/optim/optimizer.h"
#include "lab/bench/stopwatch.h"
#include "ps/ps_exchange.h"

namespace psring {
namespace {

// A quarter of a bucket, so that buckets are as large as a trained model's.
constexpr int64_t kTensorElements = kDefaultBucketBytes / 4 / sizeof(float);

// From the agreement on the start to the start: longer than the agreement takes
// to reach everybody.
constexpr double kStartMarginSeconds = 2e-3;
// A sleep may end so much late; the rest is waited for awake.
constexpr double kAwakeSeconds = 2e-4;

void AddTensor(const std::string& name, int64_t num_elements,
               proto::JobSpec* spec) {
  proto::TensorShape& tensor = *spec->add_tensors();
  tensor.set_name(name);
  tensor.add_shape(num_elements);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankJob>> RankJob::Join(
    const RankJobOptions& options, Cancellation& cancellation) {
  std::unique_ptr<RankJob> job(new RankJob(options, cancellation));
  if (absl::Status s = job->CreateModel(); !s.ok()) return s;
  if (absl::Status s = job->JoinCluster(); !s.ok()) return s;
  return job;
}

absl::Status RankJob::CreateModel() {
  spec_.set_mode(options_.cluster.mode);
  spec_.set_sync(proto::BSP);
  spec_.set_model(options_.name);
  spec_.set_data("none");
  spec_.set_batch_size(1);
  spec_.set_dataset_size(1);
  spec_.set_steps(options_.num_steps);
  spec_.set_bucket_bytes(kDefaultBucketBytes);
  *spec_.mutable_optimizer() = options_.optimizer;
  for (int64_t begin = 0; begin < options_.num_elements;
       begin += kTensorElements) {
    AddTensor(absl::StrCat("elements ", begin),
              std::min(kTensorElements, options_.num_elements - begin), &spec_);
  }
  AddTensor("guard", kAlignElements, &spec_);
  auto layout = Layout::Create({spec_.tensors().begin(), spec_.tensors().end()},
                               spec_.bucket_bytes());
  if (!layout.ok()) return layout.status();
  auto optimizer = Optimizer::Create(spec_.optimizer());
  if (!optimizer.ok()) return optimizer.status();
  const bool ring = options_.cluster.mode == proto::RING;
  auto model = FlatModel::Create(*std::move(layout), options_.same_host,
                                 ring ? optimizer->num_slots() : 0);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  return absl::OkStatus();
}

absl::Status RankJob::JoinCluster() {
  auto session =
      ClusterSession::Start(context_, cancellation_, options_.cluster);
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  proto::Join join;
  if (model_->arena != nullptr) {
    *join.mutable_shared_memory() = model_->arena->address();
  }
  if (options_.cluster.mode == proto::RING) {
    auto exchange = RingExchange::Create(
        context_, cancellation_, session_->address(), *model_, options_.ring);
    if (!exchange.ok()) return exchange.status();
    ring_ = exchange->get();
    join.add_endpoints(ring_->endpoint());
    exchange_ = *std::move(exchange);
  }
  *join.mutable_spec() = spec_;
  if (absl::Status s = session_->Join(std::move(join)); !s.ok()) return s;
  if (ring_ != nullptr) {
    return ring_->Connect(member().job(), options_.step_timeout);
  }
  auto exchange =
      PsExchange::Create(context_, cancellation_, member(), *model_);
  if (!exchange.ok()) return exchange.status();
  exchange_ = *std::move(exchange);
  return absl::OkStatus();
}

absl::StatusOr<double> RankJob::AwaitStart() {
  std::vector<double> arrivals(num_ranks(), 0.0);
  arrivals[rank()] = MonotonicSeconds();
  if (absl::Status s =
          exchange_->SumOverWorkers(absl::MakeSpan(arrivals), Deadline());
      !s.ok()) {
    return s;
  }
  const double start =
      *std::max_element(arrivals.begin(), arrivals.end()) + kStartMarginSeconds;
  const double asleep = start - kAwakeSeconds - MonotonicSeconds();
  if (asleep > 0) absl::SleepFor(absl::Seconds(asleep));
  while (MonotonicSeconds() < start) sched_yield();
  return start;
}

absl::Status RankJob::Leave(const absl::Status& result) {
  const absl::Duration patience =
      result.ok() ? options_.step_timeout : absl::Seconds(2);
  return member().Leave(result, absl::Now() + patience);
}

}  // namespace psring
