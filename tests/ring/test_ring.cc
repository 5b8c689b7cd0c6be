#include "tests/ring/test_ring.h"

#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/reduce.h"
#include "common/mutex.h"
#include "common/net/socket.h"
#include "ring/shm_communicator.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/nccl_job.h"

namespace psring {
namespace {

std::vector<int> HostsOf(RingPath path, int n) {
  std::vector<int> hosts(n, 0);
  for (int r = 0; r < n; ++r) {
    if (IsTcp(path)) hosts[r] = r;
    if (path == RingPath::kMixed) hosts[r] = r < (n + 1) / 2 ? 0 : 1;
    if (path == RingPath::kMixedRound) {
      hosts[r] = (r + 1) % n < (n + 1) / 2 ? 0 : 1;
    }
  }
  return hosts;
}

DirectLimits LimitsOf(RingPath path) {
  constexpr int64_t kAny = int64_t{1} << 40;
  if (path == RingPath::kTcpRound) return {-1, 0};
  if (path == RingPath::kTcpOwners) return {-1, kAny};
  if (path == RingPath::kTcpEverybody) return {kAny, 0};
  return {};
}

// A job of n ranks: what they publish of themselves.
class TestJob {
 public:
  TestJob(int n, RingPath path)
      : n_(n),
        path_(path),
        hosts_(HostsOf(path, n)),
        layout_(OneTensor(kMaxElements)) {
    welcome_.set_job_epoch(99);
    for (int r = 0; r < n; ++r) {
      welcome_.add_workers()->set_rank(r);
      welcome_.mutable_workers(r)->set_host("h");
      welcome_.mutable_workers(r)->set_role(proto::WORKER);
    }
  }

  void Run(const RankBody& body) {
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
          WorkerArena::Map(layout_, 0, arenas_[ranks.back()]->address());
      EXPECT_TRUE(mapped.ok()) << mapped.status();
      arenas.push_back(mapped->get());
      MutexLock lock(&mutex_);
      mapped_.push_back(*std::move(mapped));
    }
    return std::make_unique<LocalGroup>(cancellation_, welcomes_[r],
                                        std::move(ranks), std::move(arenas));
  }

  void RunRank(int r, const RankBody& body) {
    Context context;
    auto tcp = TcpCommunicator::Create(context, cancellation_, "127.0.0.1");
    ASSERT_TRUE(tcp.ok()) << tcp.status();
    auto arena = WorkerArena::Create(layout_);
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
    (*tcp)->Connect(welcomes_[r], nullptr, LimitsOf(path_));
    std::vector<float> reach;
    for (int a : hosts_) {
      for (int b : hosts_) reach.push_back(a == b ? 1.0f : 0.0f);
    }
    const std::vector<Node> nodes = NodesOf(n_, reach);
    std::unique_ptr<ShmCommunicator> shm;
    auto group = GroupOf(r, nodes[NodeOfRank(nodes, n_, r)]);
    if (nodes.size() == 1 && !IsTcp(path_)) {
      shm = std::make_unique<ShmCommunicator>(std::move(group), 1 + r % 2);
    } else if (!IsTcp(path_)) {
      (*tcp)->UseNodes(nodes, std::move(group));
    }
    const bool elsewhere = IsTcp(path_) || path_ == RingPath::kShmStaged;
    TestRank rank{shm != nullptr ? static_cast<Communicator&>(*shm) : **tcp,
                  shm != nullptr ? nullptr : tcp->get(),
                  elsewhere ? nullptr : arenas_[r].get(),
                  {}};
    body(rank);
    AwaitAll(done_);  // nobody closes while another still works
  }

  const int n_;
  const RingPath path_;
  const std::vector<int> hosts_;
  const Layout layout_;
  Cancellation cancellation_;
  Mutex mutex_;
  proto::Welcome welcome_;
  proto::Welcome welcomes_[16];
  std::unique_ptr<WorkerArena> arenas_[16];
  std::vector<std::unique_ptr<WorkerArena>> mapped_;
  int listening_ = 0;
  int done_ = 0;
};

void RunNccl(int n, const RankBody& body) {
  NcclJob(n).RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    TestRank r{c, nullptr, nullptr, {}};
    r.on_gpu = static_cast<float*>(
        *rank.device.Allocate(kMaxElements * sizeof(float)));
    body(r);
  });
}

}  // namespace

void RunRing(int n, RingPath path, const RankBody& body) {
  if (path == RingPath::kNccl) return RunNccl(n, body);
  TestJob(n, path).Run(body);
}

std::vector<float> DataOf(int rank, int64_t elements) {
  std::mt19937 random(rank * 7919 + 1);
  std::uniform_real_distribution<float> uniform(-3.0f, 3.0f);
  std::vector<float> data(elements);
  for (float& x : data) x = uniform(random);
  return data;
}

std::vector<float> VectorOf(absl::Span<const float> data) {
  return {data.begin(), data.end()};
}

Layout OneTensor(int64_t elements) {
  proto::TensorShape tensor;
  tensor.set_name("all");
  tensor.add_shape(elements);
  return *Layout::Create({tensor}, 1 << 30);
}

std::vector<float> SumOf(const std::vector<std::vector<float>>& data,
                         float scale) {
  std::vector<const void*> inputs;
  for (const auto& values : data) inputs.push_back(values.data());
  const auto elements = static_cast<int64_t>(data.front().size());
  std::vector<float> sum(elements);
  CanonicalSum({0, elements}, {0, elements}, inputs, scale, sum.data());
  return sum;
}

void SendAsStranger(const TcpCommunicator& c, const std::string& header,
                    const std::string& payload) {
  HostilePeer stranger(c.endpoint());
  stranger.Send({header, payload});
  ASSERT_TRUE(stranger.AwaitTaken(Soon()));
}

std::string RingTestName(
    const ::testing::TestParamInfo<std::tuple<int, RingPath>>& info) {
  constexpr const char* kNames[] = {
      "tcp",    "tcp_round", "tcp_owners",  "tcp_everybody", "shm",
      "staged", "mixed",     "mixed_round", "nccl"};
  return absl::StrCat(kNames[static_cast<int>(std::get<1>(info.param))], "_",
                      std::get<0>(info.param));
}

}  // namespace psring
