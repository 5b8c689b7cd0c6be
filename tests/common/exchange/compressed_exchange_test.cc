#include "common/exchange/compressed_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/cluster/worker_sum.h"
#include "common/model/layout.h"
#include "common/net/frame.h"
#include "ps/shard_map.h"
#include "ring/routes.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/local_job.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using Finals = std::vector<std::vector<float>>;

constexpr int kSteps = 6;

LocalJobOptions Options(proto::Mode mode, int workers,
                        const std::string& compress) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.spec.set_compress(compress);
  options.num_workers = workers;
  return options;
}

// Trains, and calls `after` with every worker.
Finals Train(const LocalJobOptions& options,
             const std::function<void(LocalWorker&)>& after = nullptr) {
  Finals finals(options.num_workers);
  const auto train = TrainBody(kSteps, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    absl::Status status = train(worker);
    if (status.ok() && after) after(worker);
    return status;
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

// All payload in messages; all in shared memory; both.
const std::function<void(LocalJobOptions&)> kPlacements[] = {
    [](LocalJobOptions& options) { options.same_host = SameHost::kOff; },
    [](LocalJobOptions& options) {},
    [](LocalJobOptions& options) {
      options.same_host_of = [](int index) {
        return index == 1 ? SameHost::kOff : SameHost::kAuto;
      };
    },
};

class CompressedExchangeTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, CompressedExchangeTest,
                         ::testing::Values("fp16", "bf16", "int8", "onebit",
                                           "topk:0.01", "topk:0.3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

TEST_P(CompressedExchangeTest, BspAndRingEndWithTheSameBitsHoweverPlaced) {
  for (int workers : SanitizedUpTo(3, {1, 2, 3, 4})) {
    LocalJobOptions first = Options(proto::RING, workers, GetParam());
    first.same_host = SameHost::kOff;
    const std::vector<float> reference = Train(first)[0];
    first.spec.set_compress("none");
    EXPECT_NE(Train(first)[0], reference);
    for (size_t p = 0; p < std::size(kPlacements); ++p) {
      LocalJobOptions ring = Options(proto::RING, workers, GetParam());
      kPlacements[p](ring);
      for (const auto& final : Train(ring)) {
        EXPECT_EQ(final, reference) << "ring, placement " << p;
      }
      for (int servers : {1, 2}) {
        LocalJobOptions ps =
            Options(proto::PARAMETER_SERVER, workers, GetParam());
        ps.num_servers = servers;
        ps.shard_threads = servers;
        kPlacements[p](ps);
        for (const auto& final : Train(ps)) {
          EXPECT_EQ(final, reference) << workers << " workers, " << servers
                                      << " servers, placement " << p;
        }
      }
    }
  }
}

// What a worker sends of its gradients in a step, by the formulas of
// compression.h.
int64_t FormulaOf(const std::string& compress, const Layout& layout,
                  absl::Span<const Range> pieces) {
  if (compress == "none" || compress == "fp16" || compress == "bf16") {
    int64_t elements = 0;
    for (const Range& piece : pieces) elements += piece.size();
    return (compress == "none" ? 4 : 2) * elements;
  }
  const GradientCodec codec(*ParseCompression(compress), layout);
  int64_t bytes = 0;
  for (const Range& piece : pieces) bytes += codec.EncodedBytes(piece, nullptr);
  return bytes;
}

struct Bytes {
  int64_t all = 0;
  int64_t gradients = 0;
};

// Of worker 0, without what it sends to join.
Bytes PushedBytes(const std::string& compress) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, 2, compress);
  options.same_host = SameHost::kOff;
  Bytes bytes;
  Train(options, [&](LocalWorker& worker) {
    if (worker.rank != 0) return;
    bytes = {worker.exchange->traffic().sent,
             worker.exchange->traffic().gradients_sent};
    if (compress[0] == 't') return;
    const Layout& layout = worker.model.layout;
    std::vector<Range> pieces;
    for (const ShardPlace& place : MapShards(layout, worker.client->job())) {
      for (const Piece& piece :
           PiecesOfShard(layout, place.ranges, kPieceElements)) {
        pieces.push_back(piece.range);
      }
    }
    EXPECT_EQ(bytes.gradients, kSteps * FormulaOf(compress, layout, pieces));
  });
  return bytes;
}

TEST(CompressedExchange, PushedBytesFollowTheFormulasAndNothingElseIsAdded) {
  const Bytes plain = PushedBytes("none");
  for (const char* compress : {"fp16", "bf16", "int8", "onebit", "topk:0.01"}) {
    const Bytes bytes = PushedBytes(compress);
    EXPECT_EQ(plain.all - bytes.all, plain.gradients - bytes.gradients)
        << compress;
    EXPECT_LT(bytes.gradients, plain.gradients) << compress;
  }
  const proto::JobSpec spec = SmallSpec(proto::RING, proto::BSP);
  const Layout layout = *Layout::Create(
      {spec.tensors().begin(), spec.tensors().end()}, spec.bucket_bytes());
  EXPECT_EQ(plain.gradients, kSteps * 4 * layout.num_elements());
  int64_t sent = 0;
  for (int b = 0; b < layout.num_buckets(); ++b) {
    sent += static_cast<int64_t>(
        std::ceil(0.01 * static_cast<double>(layout.bucket(b).size())));
  }
  EXPECT_EQ(PushedBytes("topk:0.01").gradients, kSteps * 8 * sent);
}

TEST(CompressedExchange, BytesInARingFollowTheFormulas) {
  for (const char* compress : {"none", "fp16", "bf16", "int8", "onebit"}) {
    LocalJobOptions options = Options(proto::RING, 3, compress);
    options.same_host = SameHost::kOff;
    std::vector<int64_t> sent(3), formula(3);
    Train(options, [&](LocalWorker& worker) {
      const Layout& layout = worker.model.layout;
      // All slices that others own, each in one segment; of small buckets that
      // are not compressed, all values to both others.
      std::vector<Range> slices;
      for (int b = 0; b < layout.num_buckets(); ++b) {
        const Range bucket = layout.bucket(b);
        const bool everybody = options.spec.compress() == "none" &&
                               WayOf(3, 3, bucket.size(), DirectLimits()) ==
                                   AllReduceWay::kEverybody;
        for (int c = 0; c < 3; ++c) {
          if (c == worker.rank) continue;
          slices.push_back(everybody ? bucket : NearEqualPart(bucket, 3, c));
        }
      }
      sent[worker.rank] = worker.exchange->traffic().gradients_sent;
      formula[worker.rank] = kSteps * FormulaOf(compress, layout, slices);
      EXPECT_GT(worker.exchange->traffic().sent, sent[worker.rank]);
    });
    EXPECT_EQ(sent, formula) << compress;
  }
}

// Strangers that speak as workers of the job do, up to the gradient itself.
TEST(CompressedExchange, MalformedGradientsAreDroppedAndTrainingGoesOn) {
  for (const char* compress : {"fp16", "int8", "onebit", "topk:0.1"}) {
    LocalJobOptions options = Options(proto::PARAMETER_SERVER, 2, compress);
    options.same_host = SameHost::kOff;
    const Finals undisturbed = Train(options);
    const CapturedLog log;
    std::deque<HostilePeer> strangers;
    Finals finals(2);
    const auto train = TrainBody(kSteps, &finals);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      const proto::Welcome& job = worker.client->job();
      const Piece piece = PiecesOfShard(
          worker.model.layout, MapShards(worker.model.layout, job)[0].ranges,
          kPieceElements)[0];
      for (int attack = 0; worker.rank == 0 && attack < 4; ++attack) {
        proto::WireHeader header;
        header.set_kind(proto::WireHeader::PUSH);
        header.set_job_epoch(job.job_epoch());
        header.set_sender(0);
        header.set_bucket(static_cast<uint32_t>(piece.bucket));
        header.set_offset(static_cast<uint64_t>(piece.range.begin));
        header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
        header.set_dtype(attack == 0 ? proto::WireHeader::FLOAT32
                                     : proto::WireHeader::ENCODED);
        // A plain gradient; one byte; too much; indices and scales of 0xff.
        const size_t size = attack == 0   ? 4 * piece.range.size()
                            : attack == 1 ? 1
                            : attack == 2 ? 16 * piece.range.size() + 1
                                          : 8 * piece.range.size();
        HostilePeer& stranger = strangers.emplace_back(
            job.servers(0).endpoints(0),
            HostilePeer::Login{worker.job->context().public_key(),
                               job.servers(0).public_key()});
        stranger.Send(header, std::string(size, '\xff'));
        EXPECT_TRUE(stranger.AwaitTaken(Soon()));
      }
      return train(worker);
    };
    for (const absl::Status& s : RunLocalJob(options, body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
    EXPECT_EQ(finals, undisturbed) << compress;
    EXPECT_EQ(log.Count("dropped peer"), 4) << compress;
  }
}

// Sgd at rate 1 with the same gradient at every step: parameters are the sum of
// what has arrived. What a step has lost comes with the next ones.
TEST_P(CompressedExchangeTest, WhatIsLostComesLater) {
  LocalJobOptions options = Options(proto::RING, 2, GetParam());
  options.spec.mutable_optimizer()->set_name("sgd");
  options.spec.mutable_optimizer()->set_momentum(0);
  options.spec.mutable_optimizer()->set_lr(1.0);
  constexpr int kMany = 400;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    FillGradients(worker, 0);
    const std::vector<float> gradient(
        worker.model.gradients.data(),
        worker.model.gradients.data() + worker.model.gradients.size());
    std::vector<double> all(gradient.begin(), gradient.end());
    if (absl::Status s =
            SumOverWorkers(*worker.member, "all", absl::MakeSpan(all), Soon());
        !s.ok()) {
      return s;
    }
    for (int step = 0; step < kMany; ++step) {
      std::copy(gradient.begin(), gradient.end(),
                worker.model.gradients.data());
      for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
        if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const double expected = -kMany * all[i] / 2;
      const double difference = worker.model.parameters.data()[i] - expected;
      error += difference * difference;
      size += expected * expected;
    }
    EXPECT_LT(std::sqrt(error / size), 0.25);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// Calls use(element, where it should end) for every parameter of the model.
template <typename Use>
void ForEachTarget(const Layout& layout, Use use) {
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const Range range = layout.tensor(static_cast<int>(t));
    for (int64_t i = range.begin; i < range.end; ++i) {
      use(i, static_cast<float>(i % 7) - 3.0f);
    }
  }
}

// The gradient is a part of the distance to a target: whoever trains comes
// closer. (It is small, as delay compensation takes its square.)
TEST_P(CompressedExchangeTest, StaleModesTrain) {
  for (proto::Sync sync : {proto::SSP, proto::ASYNC}) {
    LocalJobOptions options = Options(proto::PARAMETER_SERVER, 3, GetParam());
    options.same_host = SameHost::kOff;
    options.spec.set_sync(sync);
    options.spec.set_staleness(1);
    options.spec.mutable_optimizer()->set_name("sgd");
    options.spec.mutable_optimizer()->set_momentum(0);
    options.spec.mutable_optimizer()->set_lr(0.5);
    if (sync == proto::ASYNC) options.spec.set_delay_compensation(0.1);
    const auto body = [](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
      const Layout& layout = worker.model.layout;
      const float* parameters = worker.model.parameters.data();
      for (int step = 0; step < 200; ++step) {
        ForEachTarget(layout, [&](int64_t i, float target) {
          worker.model.gradients.data()[i] = 0.01f * (parameters[i] - target);
        });
        for (int b = 0; b < layout.num_buckets(); ++b) {
          if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
        }
        if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
      }
      // A worker that has run ahead of the others lacks what they have yet to
      // push.
      if (absl::Status s =
              worker.exchange->Synchronise(Before::kEvaluation, Soon());
          !s.ok()) {
        return s;
      }
      double at_first = 0, at_last = 0;
      ForEachTarget(layout, [&](int64_t i, float target) {
        at_first += std::abs(target);
        at_last += std::abs(parameters[i] - target);
      });
      EXPECT_LT(at_last, 0.3 * at_first);
      return absl::OkStatus();
    };
    for (const absl::Status& s : RunLocalJob(options, body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
  }
}

}  // namespace
}  // namespace psring
