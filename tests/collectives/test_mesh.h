// Several ranks' collectives in one process, over real sockets.
#ifndef PSRING_TESTS_COLLECTIVES_TEST_MESH_H_
#define PSRING_TESTS_COLLECTIVES_TEST_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/collectives.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"

namespace psring {

inline constexpr uint64_t kTestJob = 4711;

class TestMesh {
 public:
  // The main thread of every rank is the one that makes this, or with
  // `own_threads` the one on which Run, once, runs its body. The ranks from
  // `num_sharing` on share no memory.
  explicit TestMesh(int size, const CollectivesOptions& options = {},
                    bool own_threads = false, int num_sharing = 1000);

  int size() const { return static_cast<int>(ranks_.size()); }
  Collectives& at(int rank) { return *ranks_[rank]; }
  Cancellation& cancellation(int rank) { return *cancellations_[rank]; }
  void Destroy(int rank) { ranks_[rank].reset(); }

  // Runs `body` on every rank, each on a thread of its own, and joins them.
  void Run(const std::function<void(int rank, Collectives&)>& body);

 private:
  void Connect(int rank);

  std::vector<std::unique_ptr<Cancellation>> cancellations_;
  CollectiveJob job_;
  const bool own_threads_;
  Context context_;
  std::vector<std::unique_ptr<Collectives>> ranks_;
};

// Waits as callers do, a little at a time. The operation's result; an error too
// where it is not done soon.
absl::Status Await(Collectives& collectives, absl::StatusOr<int64_t> handle);

// The same, and releases it. What an allgather or an alltoall has brought.
absl::StatusOr<std::vector<std::string>> AwaitBytes(
    Collectives& collectives, absl::StatusOr<int64_t> handle);

}  // namespace psring

#endif  // PSRING_TESTS_COLLECTIVES_TEST_MESH_H_
