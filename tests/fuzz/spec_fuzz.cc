// A job's spec as a worker may send it: what a server makes of it.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/cluster/model_opening.h"
#include "common/cluster/spec_difference.h"
#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/sync_policy.h"
#include "protos/cluster.pb.h"
#include "ps/piece_table.h"
#include "ps/shard_map.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

// Pieces of larger models would fill the memory, as their parameters would.
constexpr int64_t kMaxElements = 1 << 22;
// What CheckShards reads of an input at most.
constexpr int kServersBytes = 5;

proto::JobSpec GoodSpec() {
  proto::JobSpec spec;
  spec.set_mode(proto::PARAMETER_SERVER);
  spec.set_sync(proto::BSP);
  proto::OptimizerSettings& optimizer = *spec.mutable_optimizer();
  optimizer.set_name("momentum");
  optimizer.set_lr(0.1);
  optimizer.set_momentum(0.9);
  optimizer.mutable_schedule()->set_kind("constant");
  for (int i = 0; i < 3; ++i) {
    proto::TensorShape& tensor = *spec.add_tensors();
    tensor.set_name(std::string(1, static_cast<char>('a' + i)));
    tensor.add_shape(100 * i);
    tensor.add_shape(30);
  }
  spec.set_bucket_bytes(4096);
  spec.set_model("lenet");
  spec.set_data("digits");
  spec.set_dataset_size(60000);
  spec.set_batch_size(64);
  spec.set_seed(1);
  spec.set_epochs(3);
  return spec;
}

void CheckLayout(const Layout& layout) {
  int64_t end = layout.num_elements();
  for (int b = 0; b < layout.num_buckets(); ++b) {
    const Range bucket = layout.bucket(b);
    Require(bucket.end == end && bucket.begin <= bucket.end,
            "buckets follow each other");
    end = bucket.begin;
  }
  Require(end == 0, "buckets hold all of the model");
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const int tensor = static_cast<int>(i);
    const Range range = layout.tensor(tensor);
    const Range bucket = layout.bucket(layout.bucket_of_tensor(tensor));
    Require(range.empty() || Intersect(range, bucket) == range,
            "a tensor lies in its bucket");
  }
}

void CheckPlan(const proto::JobSpec& spec, int workers) {
  const JobPlan plan = PlanOf(spec, workers);
  Require(plan.global_batch > 0 && plan.steps_per_epoch > 0,
          "an epoch has steps");
  for (const int64_t ahead : {0, 1, 7, 1000000}) {
    const int64_t step = plan.first_step + ahead;
    const EpochSteps epoch = plan.EpochOf(step);
    Require(epoch.begin <= step && step < epoch.end,
            "a step lies in its epoch");
    Require(plan.CursorAt(step).epoch() >= 0, "an epoch has a number");
    const double rate = plan.RateAt(step);
    Require(!std::isnan(rate), "a rate is a number");
    Require(plan.UpdatesAt(step) >= plan.first_updates, "updates are counted");
  }
}

void CheckShards(const Layout& layout, Bytes& input) {
  proto::Welcome job;
  const int servers = 1 + input.Below(4);
  for (int s = 0; s < servers; ++s) {
    proto::Process& server = *job.add_servers();
    for (int e = input.Below(4); e >= 0; --e) server.add_endpoints("tcp://a:1");
  }
  Ranges all;
  int64_t pieces = 0;
  for (const ShardPlace& place : MapShards(layout, job)) {
    all.insert(all.end(), place.ranges.begin(), place.ranges.end());
    const PieceTable table(layout, place.ranges);
    for (int i = 0; i < table.size(); ++i) pieces += table[i].range.size();
  }
  std::sort(all.begin(), all.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const Range& range : all) {
    Require(range.begin == end && !range.empty(), "shards tile the model");
    end = range.end;
  }
  Require(end == layout.num_elements() && pieces == end,
          "shards and pieces hold all of the model");
}

// As ps/served_model.cc does it.
void Serve(const proto::JobSpec& spec, int workers, Bytes& input) {
  if (absl::Status s = CheckPolicies(spec, workers); !s.ok()) {
    return RequireReason(s);
  }
  auto layout = Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                               spec.bucket_bytes());
  if (!layout.ok()) return RequireReason(layout.status());
  CheckLayout(*layout);
  const auto optimizer = Optimizer::ForJob(spec, spec.optimizer(), *layout);
  if (!optimizer.ok()) return RequireReason(optimizer.status());
  CheckPlan(spec, workers);
  MaxLead(PolicyOf(spec), spec.staleness());
  if (layout->num_elements() > kMaxElements) return;
  CheckShards(*layout, input);
  Require(CodecOf(spec, *layout).ok(), "policies have been checked");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<proto::JobSpec> specs(6, GoodSpec());
  specs[1].set_sync(proto::SSP);
  specs[1].set_staleness(3);
  specs[1].set_staleness_lr(true);
  specs[1].mutable_optimizer()->mutable_schedule()->set_kind("step");
  specs[1].mutable_optimizer()->mutable_schedule()->set_decay_factor(0.1);
  specs[1].set_decay_every_epochs(0.5);
  specs[2].set_mode(proto::RING);
  specs[2].set_compress("topk:0.01");
  specs[2].mutable_optimizer()->mutable_schedule()->set_kind("cosine");
  specs[2].set_warmup_epochs(1);
  specs[3].set_rates_from_workers(true);
  *specs[3].add_groups() = specs[3].optimizer();
  *specs[3].add_groups() = specs[3].optimizer();
  for (int group : {0, 1, 1}) specs[3].add_tensor_groups(group);
  specs[4].set_backup_workers(1);
  specs[4].set_record_dir("/tmp/record");
  specs[4].set_first_step(100);
  specs[4].mutable_first_cursor()->set_epoch(1);
  specs[4].mutable_first_cursor()->set_samples(64);
  specs[5].set_mean_only(true);
  specs[5].set_steps(1000);
  specs[5].set_compress("int8");
  std::vector<std::string> seeds;
  for (const proto::JobSpec& spec : specs) {
    seeds.push_back(
        Input().Byte(3).Text(spec.SerializeAsString()).Rest("\2\1\2").bytes());
  }
  proto::JobSpec change;
  change.set_compress("topk:0.01");
  change.mutable_optimizer()->mutable_schedule()->set_kind("cosine");
  seeds.push_back(Input()
                      .Byte(11)
                      .Number(0x020102, kServersBytes)
                      .Rest(change.SerializeAsString())
                      .bytes());
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const int first = input.Byte();
  const int workers = 1 + first % 8;
  proto::Announce announcement;
  announcement.set_name("open model");
  proto::Welcome model;
  fuzz::Bytes servers = input;
  bool read = true;
  if (first / 8 % 2 == 0) {
    read = model.mutable_spec()->ParseFromString(input.Text());
    servers = input;
  } else {
    // A right one, but for what the input changes in it.
    input.Number(fuzz::kServersBytes);
    *model.mutable_spec() = fuzz::GoodSpec();
    read = model.mutable_spec()->MergeFromString(input.Rest());
  }
  if (!read) return 0;
  announcement.set_payload(model.SerializeAsString());
  const auto request = ParseModelRequest(announcement);
  fuzz::Require(request.ok(), "what is sent can be read");
  const proto::JobSpec& spec = request->model.spec();
  fuzz::Serve(spec, workers, servers);
  const auto difference = SpecDifference(spec, fuzz::GoodSpec());
  fuzz::Require(!difference || !difference->empty(), "a difference is named");
  return 0;
}
