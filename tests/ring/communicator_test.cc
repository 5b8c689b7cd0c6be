// What every communicator promises, for 1 to 8 ranks as threads. (NCCL and its
// GPUs are fakes, which sum in the canonical order.)
#include "ring/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/compression.h"
#include "common/model/reduce.h"
#include "common/model/worker_arena.h"
#include "common/mutex.h"
#include "ring/shm_communicator.h"
#include "ring/tcp_communicator.h"
#include "tests/testing/nccl_job.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// How the ranks reach each other.
enum class Path {
  kTcp,         // messages alone
  kShm,         // all ranks share memory, and so does the data
  kShmStaged,   // the same, with data that lies elsewhere
  kMixed,       // two hosts, one half of the ranks each
  kMixedRound,  // the same, a host's ranks around the end of the ring
  kNccl,        // the data on a GPU
};

constexpr int64_t kMaxElements = 300001;

// One rank of a test's ring.
struct Rank {
  Communicator& c;
  TcpCommunicator* tcp;  // null: not in use
  WorkerArena* arena;    // null: data lies elsewhere
  std::vector<float> elsewhere;
  float* on_gpu = nullptr;

  // The data of a collective: the same memory in each.
  absl::Span<float> Place(const std::vector<float>& values) {
    if (on_gpu != nullptr) {
      std::copy(values.begin(), values.end(), on_gpu);
      return {on_gpu, values.size()};
    }
    if (arena == nullptr) {
      elsewhere = values;
      return absl::MakeSpan(elsewhere);
    }
    std::copy(values.begin(), values.end(), arena->gradients());
    return {arena->gradients(), values.size()};
  }
};

using Body = std::function<void(Rank&)>;

std::vector<float> VectorOf(absl::Span<const float> data) {
  return {data.begin(), data.end()};
}

std::vector<int> HostsOf(Path path, int n) {
  std::vector<int> hosts(n, 0);
  for (int r = 0; r < n; ++r) {
    if (path == Path::kTcp) hosts[r] = r;
    if (path == Path::kMixed) hosts[r] = r < (n + 1) / 2 ? 0 : 1;
    if (path == Path::kMixedRound) hosts[r] = (r + 1) % n < (n + 1) / 2 ? 0 : 1;
  }
  return hosts;
}

// A job of n ranks: what they publish of themselves.
class TestJob {
 public:
  TestJob(int n, Path path) : n_(n), path_(path), hosts_(HostsOf(path, n)) {
    welcome_.set_job_epoch(99);
    for (int r = 0; r < n; ++r) {
      welcome_.add_workers()->set_rank(r);
      welcome_.mutable_workers(r)->set_host("h");
      welcome_.mutable_workers(r)->set_role(proto::WORKER);
    }
    proto::TensorShape tensor;
    tensor.set_name("all");
    tensor.add_shape(kMaxElements);
    layout_ = *Layout::Create({tensor}, 1 << 30);
  }

  void Run(const Body& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < n_; ++r) {
      threads.emplace_back([&, r] { RunRank(r, body); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void AwaitAll(int& count) {
    MutexLock lock(&mutex_);
    ++count;
    const auto all = [&] { return count == n_; };
    mutex_.Await(all);
  }

  std::unique_ptr<LocalGroup> GroupOf(int r, const Node& node) {
    std::vector<int> ranks;
    std::vector<WorkerArena*> arenas;
    for (int i = 0; i < node.size; ++i) {
      ranks.push_back((node.first + i) % n_);
      if (ranks.back() == r) {
        arenas.push_back(arenas_[r].get());
        continue;
      }
      auto mapped =
          WorkerArena::Map(*layout_, 0, arenas_[ranks.back()]->address());
      EXPECT_TRUE(mapped.ok()) << mapped.status();
      arenas.push_back(mapped->get());
      MutexLock lock(&mutex_);
      mapped_.push_back(*std::move(mapped));
    }
    return std::make_unique<LocalGroup>(cancellation_, welcomes_[r],
                                        std::move(ranks), std::move(arenas));
  }

  void RunRank(int r, const Body& body) {
    Context context;
    auto tcp = TcpCommunicator::Create(context, cancellation_, "127.0.0.1");
    ASSERT_TRUE(tcp.ok()) << tcp.status();
    auto arena = WorkerArena::Create(*layout_);
    ASSERT_TRUE(arena.ok()) << arena.status();
    {
      MutexLock lock(&mutex_);
      welcome_.mutable_workers(r)->add_endpoints((*tcp)->endpoint());
      arenas_[r] = *std::move(arena);
    }
    AwaitAll(listening_);
    {
      MutexLock lock(&mutex_);
      welcomes_[r] = welcome_;
      welcomes_[r].set_rank(r);
    }
    (*tcp)->Connect(welcomes_[r]);
    std::vector<float> reach;
    for (int a : hosts_) {
      for (int b : hosts_) reach.push_back(a == b ? 1.0f : 0.0f);
    }
    const std::vector<Node> nodes = NodesOf(n_, reach);
    std::unique_ptr<ShmCommunicator> shm;
    auto group = GroupOf(r, nodes[NodeOfRank(nodes, n_, r)]);
    if (nodes.size() == 1 && path_ != Path::kTcp) {
      shm = std::make_unique<ShmCommunicator>(std::move(group), 1 + r % 2);
    } else if (path_ != Path::kTcp) {
      (*tcp)->UseNodes(nodes, std::move(group));
    }
    const bool elsewhere = path_ == Path::kTcp || path_ == Path::kShmStaged;
    Rank rank{shm != nullptr ? static_cast<Communicator&>(*shm) : **tcp,
              shm != nullptr ? nullptr : tcp->get(),
              elsewhere ? nullptr : arenas_[r].get(),
              {}};
    body(rank);
    AwaitAll(done_);  // nobody closes while another still works
  }

  const int n_;
  const Path path_;
  const std::vector<int> hosts_;
  std::optional<Layout> layout_;
  Cancellation cancellation_;
  Mutex mutex_;
  proto::Welcome welcome_;
  proto::Welcome welcomes_[16];
  std::unique_ptr<WorkerArena> arenas_[16];
  std::vector<std::unique_ptr<WorkerArena>> mapped_;
  int listening_ = 0;
  int done_ = 0;
};

void RunNccl(int n, const Body& body) {
  NcclJob(n).RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    Rank r{c, nullptr, nullptr, {}};
    r.on_gpu = static_cast<float*>(
        *rank.device.Allocate(kMaxElements * sizeof(float)));
    body(r);
  });
}

void RunRing(int n, Path path, const Body& body) {
  if (path == Path::kNccl) return RunNccl(n, body);
  TestJob(n, path).Run(body);
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

const std::vector<int64_t> kSizes = {0,  1,   7,    15,    16,
                                     17, 100, 4097, 70001, kMaxElements};

class CommunicatorTest
    : public ::testing::TestWithParam<std::tuple<int, Path>> {
 protected:
  int n() const { return std::get<0>(GetParam()); }
  void RunRanks(const Body& body) {
    RunRing(n(), std::get<1>(GetParam()), body);
  }
};

TEST_P(CommunicatorTest, AllReduceGivesEveryRankTheCanonicalBits) {
  const float scale = 1.0f / static_cast<float>(n());
  RunRanks([&](Rank& rank) {
    for (int64_t elements : kSizes) {
      const absl::Span<float> data =
          rank.Place(DataOf(rank.c.rank(), elements));
      const absl::Status status = rank.c.AllReduce(data, scale, Soon());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(VectorOf(data), CanonicalSumOf(n(), elements, scale))
          << elements;
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterThenAllGatherIsAllReduce) {
  RunRanks([&](Rank& rank) {
    for (int64_t elements : kSizes) {
      const std::vector<float> sum = CanonicalSumOf(n(), elements, 1.0f);
      const absl::Span<float> data =
          rank.Place(DataOf(rank.c.rank(), elements));
      ASSERT_TRUE(rank.c.ReduceScatter(data, 1.0f, Soon()).ok());
      const Range mine = NearEqualPart({0, elements}, n(), rank.c.rank());
      for (int64_t i = 0; i < elements; ++i) {
        if (i >= mine.begin && i < mine.end) {
          ASSERT_EQ(data[i], sum[i]);
        } else {
          data[i] = -1.0f;  // only its own slice counts
        }
      }
      ASSERT_TRUE(rank.c.AllGather(data, Soon()).ok());
      ASSERT_EQ(VectorOf(data), sum) << elements;
    }
  });
}

TEST_P(CommunicatorTest, BroadcastReachesAllFromAnyRoot) {
  RunRanks([&](Rank& rank) {
    for (int root = 0; root < n(); ++root) {
      for (int64_t elements : kSizes) {
        const absl::Span<float> data =
            rank.Place(DataOf(rank.c.rank(), elements));
        ASSERT_TRUE(rank.c.Broadcast(data, root, Soon()).ok());
        ASSERT_EQ(VectorOf(data), DataOf(root, elements));
      }
    }
  });
}

TEST_P(CommunicatorTest, BarrierHoldsUntilEverybodyIsThere) {
  std::atomic<int> arrived = 0;
  RunRanks([&](Rank& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      ASSERT_TRUE(rank.c.Barrier(Soon()).ok());
      ASSERT_GE(arrived.load(), n() * round);
    }
  });
}

TEST_P(CommunicatorTest, SumMetricsAddsDoublesInRankOrder) {
  RunRanks([&](Rank& rank) {
    std::vector<double> values(9, 0.1);
    values[8] = rank.c.rank();
    double expected = 0.0;
    for (int r = 0; r < n(); ++r) expected += 0.1;
    ASSERT_TRUE(rank.c.SumMetrics(absl::MakeSpan(values), Soon()).ok());
    EXPECT_EQ(values[0], expected);
    EXPECT_EQ(values[8], n() * (n() - 1) / 2);
  });
}

// Of all kinds and of sizes on both sides of every threshold.
TEST_P(CommunicatorTest, ManyCollectivesInARowDoNotMix) {
  RunRanks([&](Rank& rank) {
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> values(i % 3 == 0 ? 5000 : 33,
                                      static_cast<float>(i));
      const absl::Span<float> data = rank.Place(values);
      ASSERT_TRUE(rank.c.AllReduce(data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data),
                std::vector<float>(values.size(), static_cast<float>(i * n())));
      if (i % 5 == 0) {
        ASSERT_TRUE(rank.c.Broadcast(data, i % n(), Soon()).ok());
      }
    }
  });
}

std::string NameOf(
    const ::testing::TestParamInfo<std::tuple<int, Path>>& info) {
  constexpr const char* kNames[] = {"tcp",   "shm",         "staged",
                                    "mixed", "mixed_round", "nccl"};
  return absl::StrCat(kNames[static_cast<int>(std::get<1>(info.param))], "_",
                      std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, CommunicatorTest,
    ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 6, 7, 8),
                       ::testing::Values(Path::kTcp, Path::kShm,
                                         Path::kShmStaged)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    TwoHosts, CommunicatorTest,
    ::testing::Combine(::testing::Values(3, 4, 5, 8),
                       ::testing::Values(Path::kMixed, Path::kMixedRound)),
    NameOf);

INSTANTIATE_TEST_SUITE_P(Gpus, CommunicatorTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(Path::kNccl)),
                         NameOf);

class MissingRankTest : public ::testing::TestWithParam<Path> {};

TEST_P(MissingRankTest, IsNamed) {
  RunRing(3, GetParam(), [](Rank& rank) {
    if (rank.c.rank() == 1) return;
    const absl::Span<float> data = rank.Place(std::vector<float>(5000, 1.0f));
    const absl::Status status =
        rank.c.AllReduce(data, 1.0f, absl::Now() + absl::Milliseconds(300));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    if (rank.c.rank() == 2) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, MissingRankTest,
                         ::testing::Values(Path::kTcp, Path::kShm,
                                           Path::kNccl));

TEST(ShmCommunicator, RanksThatDisagreeOnTheSizeAreNamed) {
  RunRing(2, Path::kShm, [](Rank& rank) {
    const absl::Span<float> data =
        rank.Place(std::vector<float>(rank.c.rank() == 0 ? 5000 : 6000, 1.0f));
    const absl::Status status = rank.c.AllReduce(data, 1.0f, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("5000"), HasSubstr("6000")));
  });
}

TEST(TcpCommunicator, DropsStrangersAndGoesOn) {
  RunRing(2, Path::kTcp, [](Rank& rank) {
    TcpCommunicator& c = *rank.tcp;
    Context context;
    for (int attack = 0; attack < 4; ++attack) {
      auto socket = Socket::Connect(context, c.endpoint());
      proto::WireHeader header;
      header.set_kind(proto::WireHeader::SEGMENT);
      header.set_dtype(proto::WireHeader::FLOAT32);
      header.set_job_epoch(attack == 1 ? 1 : 99);
      header.set_sender(attack == 2 ? c.rank() : 1 - c.rank());
      header.set_sequence(attack == 3 ? 77 : 1);
      header.set_hop(1);
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
      const absl::Span<float> data = rank.Place(std::vector<float>(1000, 1.0f));
      ASSERT_TRUE(c.AllReduce(data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data), std::vector<float>(1000, 2.0f));
    }
    EXPECT_GE(c.malformed(), 4);
  });
}

proto::TensorShape TensorOf(int64_t elements) {
  proto::TensorShape tensor;
  tensor.set_name("all");
  tensor.add_shape(elements);
  return tensor;
}

// A model of one tensor, in one bucket.
GradientCodec CodecOf(const std::string& name, int64_t elements) {
  return GradientCodec(*ParseCompression(name),
                       *Layout::Create({TensorOf(elements)}, 1 << 30));
}

std::vector<float> QuantisedDataOf(const GradientCodec& codec, int rank,
                                   int64_t elements) {
  std::vector<float> data = DataOf(rank, elements);
  std::vector<float> residual(elements, 0.0f);
  codec.Quantise({0, elements}, data.data(), residual.data());
  return data;
}

class EncodedTest : public CommunicatorTest {};

TEST_P(EncodedTest, AllReduceGivesEveryRankTheCanonicalBits) {
  const float scale = 1.0f / static_cast<float>(n());
  for (const char* name : {"fp16", "int8", "onebit", "topk:0.1"}) {
    RunRanks([&](Rank& rank) {
      for (int64_t elements : {16, 4096, 70000, 300000}) {
        const GradientCodec codec = CodecOf(name, elements);
        std::vector<std::vector<float>> all;
        std::vector<const void*> inputs;
        for (int r = 0; r < n(); ++r) {
          all.push_back(QuantisedDataOf(codec, r, elements));
        }
        for (const auto& values : all) inputs.push_back(values.data());
        std::vector<float> sum(elements);
        CanonicalSum({0, elements}, {0, elements}, inputs, scale, sum.data());
        const absl::Span<float> data = rank.Place(all[rank.c.rank()]);
        const absl::Status status =
            rank.tcp->AllReduceEncoded(codec, 0, data, scale, Soon());
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(VectorOf(data), sum) << name << " " << elements;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EncodedTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::Values(Path::kTcp)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    TwoHosts, EncodedTest,
    ::testing::Combine(::testing::Values(3, 4),
                       ::testing::Values(Path::kMixed, Path::kMixedRound)),
    NameOf);

TEST(TcpCommunicator, NamesARankThatSendsNoEncodedValues) {
  RunRing(3, Path::kTcp, [](Rank& rank) {
    if (rank.c.rank() == 1) return;
    const GradientCodec codec = CodecOf("int8", 4096);
    const absl::Span<float> data = rank.Place(std::vector<float>(4096, 1.0f));
    const absl::Status status = rank.tcp->AllReduceEncoded(
        codec, 0, data, 1.0f, absl::Now() + absl::Milliseconds(300));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
  });
}

// Strangers that speak as a rank does, up to the values themselves.
TEST(TcpCommunicator, DropsEncodedValuesThatAreNone) {
  RunRing(2, Path::kTcp, [](Rank& rank) {
    TcpCommunicator& c = *rank.tcp;
    const GradientCodec codec = CodecOf("int8", 1024);
    const Range slice = NearEqualPart({0, 1024}, 2, c.rank());
    Context context;
    for (int attack = 0; attack < 4; ++attack) {
      auto socket = Socket::Connect(context, c.endpoint());
      proto::WireHeader header;
      header.set_kind(proto::WireHeader::SEGMENT);
      header.set_dtype(attack == 0 ? proto::WireHeader::FLOAT32
                                   : proto::WireHeader::ENCODED);
      header.set_job_epoch(99);
      header.set_sender(1 - c.rank());
      header.set_sequence(1);
      header.set_bucket(c.rank());  // DirectRoutes: of that slice
      header.set_hop(1);
      header.set_offset(slice.begin);
      header.set_num_elements(slice.size());
      // Floats; one byte; too many; a scale of 0 in the right size.
      const int64_t size = attack == 0   ? 4 * slice.size()
                           : attack == 1 ? 1
                           : attack == 2 ? 4 * slice.size()
                                         : slice.size() + 2;
      Frames frames;
      frames.push_back(Frame::Copy(header.SerializeAsString()));
      frames.push_back(Frame::Copy(std::string(size, '\0')));
      ASSERT_TRUE((*socket)->Send(std::move(frames)).ok());
      ASSERT_TRUE(Wait(std::vector<Socket*>{}, std::vector<int>{},
                       absl::Now() + absl::Milliseconds(20))
                      .ok());
    }
    for (int i = 0; i < 50; ++i) {
      const absl::Span<float> data = rank.Place(std::vector<float>(1024, 1.0f));
      ASSERT_TRUE(c.AllReduceEncoded(codec, 0, data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data), std::vector<float>(1024, 2.0f));
    }
    EXPECT_GE(c.malformed(), 4);
  });
}

}  // namespace
}  // namespace psring
