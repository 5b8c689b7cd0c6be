#include "lab/bench/rank_job.h"

#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/cluster/worker_sum.h"
#include "common/model/layout.h"
#include "lab/bench/stopwatch.h"

namespace psring {
namespace {

// Small beside the smallest bucket, so that buckets are as large as a trained
// model's, and as those of ExchangeWorkload() (lab/predict/calibration.h).
constexpr int64_t kTensorElements = 64 << 10;

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
  if (absl::Status s = job->JoinCluster(); !s.ok()) return s;
  return job;
}

proto::JobSpec RankJob::Spec() const {
  proto::JobSpec spec;
  spec.set_mode(options_.cluster.mode);
  spec.set_sync(proto::BSP);
  spec.set_model(options_.name);
  spec.set_data("none");
  spec.set_batch_size(1);
  spec.set_dataset_size(1);
  spec.set_steps(options_.num_steps);
  spec.set_bucket_bytes(kDefaultBucketBytes);
  *spec.mutable_optimizer() = options_.optimizer;
  for (int64_t begin = 0; begin < options_.num_elements;
       begin += kTensorElements) {
    AddTensor(absl::StrCat("elements ", begin),
              std::min(kTensorElements, options_.num_elements - begin), &spec);
  }
  AddTensor("guard", kAlignElements, &spec);
  return spec;
}

absl::Status RankJob::JoinCluster() {
  const proto::JobSpec spec = Spec();
  auto model = CreateFlatModel(spec, options_.same_host);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  auto job = JobClient::Join(options_.cluster, cancellation_);
  if (!job.ok()) return job.status();
  job_ = *std::move(job);
  auto client = ModelClient::Open(*job_,
                                  {.spec = spec,
                                   .ring = options_.ring,
                                   .step_timeout = options_.step_timeout},
                                  *model_);
  if (!client.ok()) return Leave(client.status());
  client_ = *std::move(client);
  auto exchange = client_->Connect();
  if (!exchange.ok()) return exchange.status();
  exchange_ = *std::move(exchange);
  return absl::OkStatus();
}

absl::StatusOr<double> RankJob::AwaitStart() {
  std::vector<double> arrivals(num_ranks(), 0.0);
  arrivals[rank()] = MonotonicSeconds();
  if (absl::Status s =
          SumOverWorkers(member(), absl::StrCat("start ", num_starts_++),
                         absl::MakeSpan(arrivals), Deadline());
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
  return job_->Leave(result, 2 * options_.step_timeout);
}

}  // namespace psring
