// A ring of threads for tests: 1 to 16 ranks that reach each other in any of
// the ways in which a job's ranks do.
#ifndef PSRING_TESTS_RING_TEST_RING_H_
#define PSRING_TESTS_RING_TEST_RING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/model/worker_arena.h"
#include "ring/communicator.h"
#include "ring/tcp_communicator.h"
#include "tests/testing/soon.h"

namespace psring {

// How the ranks reach each other.
enum class RingPath {
  kTcp,           // messages alone, the way that the size decides
  kTcpRound,      // the same, round the ring whatever the size
  kTcpOwners,     // the same, by way of the slices' owners
  kTcpEverybody,  // the same, to everybody, as far as a bucket is one segment
  kShm,           // all ranks share memory, and so does the data
  kShmStaged,     // the same, with data that lies elsewhere
  kMixed,         // two hosts, one half of the ranks each
  kMixedRound,    // the same, a host's ranks around the end of the ring
  kNccl,          // the data on a GPU
};

inline constexpr int64_t kMaxElements = 300001;

// How long the others, who come at once, wait for a rank that never does. On a
// busy machine they come one after the other.
inline constexpr absl::Duration kLateAfter = absl::Seconds(1);

// One rank of a test's ring.
struct TestRank {
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

using RankBody = std::function<void(TestRank&)>;

// Whether the ranks have messages alone.
inline bool IsTcp(RingPath path) { return path <= RingPath::kTcpEverybody; }

// Runs `body` in a thread for each of n ranks, of hosts named "h" and a job of
// epoch 99; returns when all are through.
void RunRing(int n, RingPath path, const RankBody& body);

// Rank r's data; irregular, so that the order of a sum shows in its bits.
std::vector<float> DataOf(int rank, int64_t elements);

std::vector<float> VectorOf(absl::Span<const float> data);

// A model of one tensor, in one bucket.
Layout OneTensor(int64_t elements);

// What an allreduce of these makes.
std::vector<float> SumOf(const std::vector<std::vector<float>>& data,
                         float scale);

// A stranger's connection brings `c` this message; returns when it is there.
void SendAsStranger(const TcpCommunicator& c, const std::string& header,
                    const std::string& payload);

// What is tested for several numbers of ranks and paths.
class RingTest : public ::testing::TestWithParam<std::tuple<int, RingPath>> {
 protected:
  int n() const { return std::get<0>(GetParam()); }
  void RunRanks(const RankBody& body) {
    RunRing(n(), std::get<1>(GetParam()), body);
  }
};

// "tcp_3".
std::string RingTestName(
    const ::testing::TestParamInfo<std::tuple<int, RingPath>>& info);

}  // namespace psring

#endif  // PSRING_TESTS_RING_TEST_RING_H_
