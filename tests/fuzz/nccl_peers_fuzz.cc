// What ranks tell each other before NCCL connects them (ring/nccl/nccl_peers.h)
// and before they launch its collectives (ring/collective_plan.h).
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/layout.h"
#include "ring/collective_plan.h"
#include "ring/nccl/nccl_peers.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

std::string TextOf(int version, const std::string& bus_id, char fill) {
  NcclPeer peer;
  peer.version = version;
  peer.bus_id = bus_id;
  std::memset(&peer.id, fill, sizeof(peer.id));
  return EncodeNcclPeer(peer);
}

proto::Welcome JobOf(int workers) {
  proto::Welcome job;
  for (int i = 0; i < workers; ++i) {
    job.add_workers()->set_rank(i);
    job.mutable_workers(i)->set_host("a");
  }
  return job;
}

void AgreeOnId(const std::vector<std::string>& texts, const proto::Welcome& job,
               bool shared) {
  const auto id = AgreeOnNcclId(texts, job, shared);
  if (!id.ok()) return RequireReason(id.status());
  Require(texts.size() == static_cast<size_t>(job.workers_size()),
          "all ranks agree");
  NcclPeer first;
  first.id = *id;
  const std::string hex = EncodeNcclPeer(first).substr(3);
  std::string said = texts[0].substr(texts[0].rfind('\n') + 1);
  for (char& c : said) c = static_cast<char>(tolower(c));
  Require(hex == said, "rank 0's id is everybody's");
}

constexpr int kBuckets = 3;

std::string PlanOfBuckets(const std::vector<int>& buckets) {
  std::vector<proto::TensorShape> tensors(kBuckets);
  for (int i = 0; i < kBuckets; ++i) {
    tensors[static_cast<size_t>(i)].set_name(absl::StrCat("t", i));
    tensors[static_cast<size_t>(i)].add_shape(16);
  }
  const auto layout = Layout::Create(tensors, 64);
  Require(layout.ok() && layout->num_buckets() == kBuckets,
          "the layout is right");
  return PlanText(*layout, buckets, 0);
}

// This is the last rank, and honest.
void AgreeOnOrder(std::vector<std::string> plans, const proto::Welcome& job) {
  plans.push_back(PlanOfBuckets({2, 0, 1}));
  const int self = static_cast<int>(plans.size()) - 1;
  const auto order = AgreeOnPlan(plans, self, job);
  if (!order.ok()) return RequireReason(order.status());
  const std::set<int> places(order->begin(), order->end());
  Require(order->size() == kBuckets && places == std::set<int>({0, 1, 2}),
          "every bucket is launched, once");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string plan = PlanOfBuckets({0, 1, 2});
  const std::string first = TextOf(22000, "0000:01:00.0", 'x');
  return {
      Input().Byte(2).Byte(0).Text(first).bytes(),
      Input()
          .Byte(1)
          .Byte(0)
          .Text(first)
          .Text(TextOf(22000, "0000:02:00.0", 'y'))
          .bytes(),
      Input().Byte(1).Byte(1).Text(first).Text(first).bytes(),
      Input().Byte(1).Byte(2).Text(plan).bytes(),
      Input().Byte(2).Byte(2).Text(plan).Text(PlanOfBuckets({1, 0})).bytes(),
      // A bucket that is named twice; and the first line.
      Input()
          .Byte(1)
          .Byte(2)
          .Text(absl::StrCat(plan, plan.substr(plan.rfind('\n'))))
          .bytes(),
      Input()
          .Byte(1)
          .Byte(2)
          .Text(absl::StrCat(plan, "\n", plan.substr(0, plan.find('\n'))))
          .bytes(),
      Input().Byte(1).Byte(1).Text(first).Text(TextOf(21000, "b", 'z')).bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const proto::Welcome job = fuzz::JobOf(1 + input.Below(3));
  const int kind = input.Below(3);
  std::vector<std::string> texts;
  while (!input.empty()) texts.push_back(input.Text());
  if (kind == 2) {
    fuzz::AgreeOnOrder(std::move(texts), job);
  } else {
    fuzz::AgreeOnId(texts, job, /*shared=*/kind == 1);
  }
  return 0;
}
