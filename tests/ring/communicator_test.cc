// What every communicator promises, for 1 to 8 ranks as threads.
#include "ring/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/model/reduce.h"
#include "common/mutex.h"
#include "ring/tcp_communicator.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

using Body = std::function<void(TcpCommunicator&)>;

// Runs `body` once a rank, each rank a thread with its own context.
void RunRing(int n, const Body& body) {
  proto::Welcome job;
  job.set_job_epoch(99);
  for (int r = 0; r < n; ++r) {
    job.add_workers()->set_rank(r);
    job.mutable_workers(r)->set_host("h");
    job.mutable_workers(r)->set_role(proto::WORKER);
  }
  Mutex mutex;
  int listening = 0;
  int done = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      Context context;
      Cancellation cancellation;
      auto communicator =
          TcpCommunicator::Create(context, cancellation, "127.0.0.1");
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      proto::Welcome mine;
      {
        MutexLock lock(&mutex);
        job.mutable_workers(r)->add_endpoints((*communicator)->endpoint());
        ++listening;
        const auto all = [&] { return listening == n; };
        mutex.Await(all);
        mine = job;
      }
      mine.set_rank(r);
      ASSERT_TRUE((*communicator)->Connect(mine).ok());
      body(**communicator);
      // Nobody closes while another still works.
      MutexLock lock(&mutex);
      ++done;
      const auto all_done = [&] { return done == n; };
      mutex.Await(all_done);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank r's data; irregular, so that the order of a sum shows in its bits.
std::vector<float> DataOf(int rank, int64_t elements) {
  std::mt19937 random(rank * 7919 + 1);
  std::uniform_real_distribution<float> uniform(-3.0f, 3.0f);
  std::vector<float> data(elements);
  for (float& x : data) x = uniform(random);
  return data;
}

std::vector<float> CanonicalSumOf(int n, int64_t elements, float scale) {
  std::vector<std::vector<float>> data;
  std::vector<const void*> inputs;
  for (int r = 0; r < n; ++r) data.push_back(DataOf(r, elements));
  for (const auto& d : data) inputs.push_back(d.data());
  std::vector<float> sum(elements);
  CanonicalSum({0, elements}, {0, elements}, inputs, scale, sum.data());
  return sum;
}

const std::vector<int64_t> kSizes = {0, 1, 7, 15, 16, 17, 100, 4097, 300001};

class CommunicatorTest : public ::testing::TestWithParam<int> {};

TEST_P(CommunicatorTest, AllReduceGivesEveryRankTheCanonicalBits) {
  const int n = GetParam();
  const float scale = 1.0f / static_cast<float>(n);
  RunRing(n, [&](Communicator& c) {
    for (int64_t elements : kSizes) {
      std::vector<float> data = DataOf(c.rank(), elements);
      ASSERT_TRUE(c.AllReduce(absl::MakeSpan(data), scale, Soon()).ok());
      ASSERT_EQ(data, CanonicalSumOf(n, elements, scale)) << elements;
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterThenAllGatherIsAllReduce) {
  const int n = GetParam();
  RunRing(n, [&](Communicator& c) {
    for (int64_t elements : kSizes) {
      const std::vector<float> sum = CanonicalSumOf(n, elements, 1.0f);
      std::vector<float> data = DataOf(c.rank(), elements);
      ASSERT_TRUE(c.ReduceScatter(absl::MakeSpan(data), 1.0f, Soon()).ok());
      const Range mine = NearEqualPart({0, elements}, n, c.rank());
      for (int64_t i = 0; i < elements; ++i) {
        if (i >= mine.begin && i < mine.end) {
          ASSERT_EQ(data[i], sum[i]);
        } else {
          data[i] = -1.0f;  // only its own slice counts
        }
      }
      ASSERT_TRUE(c.AllGather(absl::MakeSpan(data), Soon()).ok());
      ASSERT_EQ(data, sum) << elements;
    }
  });
}

TEST_P(CommunicatorTest, BroadcastReachesAllFromAnyRoot) {
  const int n = GetParam();
  RunRing(n, [&](Communicator& c) {
    for (int root = 0; root < n; ++root) {
      for (int64_t elements : kSizes) {
        std::vector<float> data = DataOf(c.rank(), elements);
        ASSERT_TRUE(c.Broadcast(absl::MakeSpan(data), root, Soon()).ok());
        ASSERT_EQ(data, DataOf(root, elements));
      }
    }
  });
}

TEST_P(CommunicatorTest, BarrierHoldsUntilEverybodyIsThere) {
  const int n = GetParam();
  std::atomic<int> arrived = 0;
  RunRing(n, [&](Communicator& c) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      ASSERT_TRUE(c.Barrier(Soon()).ok());
      ASSERT_GE(arrived.load(), n * round);
    }
  });
}

TEST_P(CommunicatorTest, SumMetricsAddsDoublesInRankOrder) {
  const int n = GetParam();
  RunRing(n, [&](Communicator& c) {
    std::vector<double> values(9, 0.1);
    values[8] = c.rank();
    double expected = 0.0;
    for (int r = 0; r < n; ++r) expected += 0.1;
    ASSERT_TRUE(c.SumMetrics(absl::MakeSpan(values), Soon()).ok());
    EXPECT_EQ(values[0], expected);
    EXPECT_EQ(values[8], n * (n - 1) / 2);
  });
}

TEST_P(CommunicatorTest, ManyCollectivesInARowDoNotMix) {
  const int n = GetParam();
  RunRing(n, [&](Communicator& c) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> data(33, static_cast<float>(i));
      ASSERT_TRUE(c.AllReduce(absl::MakeSpan(data), 1.0f, Soon()).ok());
      ASSERT_EQ(data, std::vector<float>(33, static_cast<float>(i * n)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorTest,
                         ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(TcpCommunicator, NamesTheRankThatSendsNothing) {
  RunRing(3, [](Communicator& c) {
    if (c.rank() == 1) return;
    std::vector<float> data(100, 1.0f);
    const absl::Status status = c.AllReduce(
        absl::MakeSpan(data), 1.0f, absl::Now() + absl::Milliseconds(300));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    if (c.rank() == 2) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
    }
  });
}

TEST(TcpCommunicator, DropsStrangersAndGoesOn) {
  RunRing(2, [](TcpCommunicator& c) {
    Context context;
    for (int attack = 0; attack < 4; ++attack) {
      auto socket = Socket::Connect(context, c.endpoint());
      proto::WireHeader header;
      header.set_kind(proto::WireHeader::SEGMENT);
      header.set_dtype(proto::WireHeader::FLOAT32);
      header.set_job_epoch(attack == 1 ? 1 : 99);
      header.set_sender(attack == 2 ? c.rank() : 1 - c.rank());
      header.set_sequence(attack == 3 ? 77 : 1);
      header.set_offset(1);
      header.set_num_elements(2);
      Frames frames;
      frames.push_back(
          Frame::Copy(attack == 0 ? "x" : header.SerializeAsString()));
      frames.push_back(Frame::Copy("12345678"));
      ASSERT_TRUE((*socket)->Send(std::move(frames)).ok());
      ASSERT_TRUE(Wait(std::vector<Socket*>{}, std::vector<int>{},
                       absl::Now() + absl::Milliseconds(20))
                      .ok());
    }
    for (int i = 0; i < 50; ++i) {
      std::vector<float> data(1000, 1.0f);
      ASSERT_TRUE(c.AllReduce(absl::MakeSpan(data), 1.0f, Soon()).ok());
      ASSERT_EQ(data, std::vector<float>(1000, 2.0f));
    }
  });
}

}  // namespace
}  // namespace psring
