// NCCL for ranks that are threads, each with a FakeDevice: it really does the
// collectives, in the canonical order, on the devices' streams, and it behaves
// as badly as the real one when told to: it hangs in silence when ranks differ
// or one does not come, does nothing before it has been asked how it is, and
// dislikes two calls at once.
#ifndef PSRING_TESTS_TESTING_FAKE_NCCL_H_
#define PSRING_TESTS_TESTING_FAKE_NCCL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "ring/nccl/nccl_api.h"
#include "tests/testing/fake_device.h"

namespace psring {

class FakeNccl {
 public:
  FakeNccl() = default;
  // Ends whatever hangs. Devices end before this.
  ~FakeNccl() { Release(); }

  // The table of one rank.
  NcclApi ApiOf(FakeDevice& device);

  // From now on:
  void HangInit();
  // Launches stay in preparation, or no longer.
  void HoldLaunches(bool hold);
  void HangAborts();
  void RefuseBuffersOf(int rank);
  // async_error answers with `result`.
  void Break(int rank, NcclResult result);
  // Ends whatever hangs, for good.
  void Release();

  int num_aborts() const;
  int num_destroyed() const;
  int num_registered() const;
  // Collectives that have reached a stream, of all ranks.
  int num_launched() const;

 private:
  enum class Kind { kAllReduce, kBroadcast };
  struct Op {
    Kind kind = Kind::kAllReduce;
    const float* in = nullptr;
    float* out = nullptr;
    size_t count = 0;
    int root = 0;
  };
  struct Meeting {  // of all ranks in one collective
    std::vector<std::optional<Op>> ops;
    bool done = false;
  };
  struct Comm;
  struct Clique {  // the communicators of one id
    int num_ranks = 0;
    std::map<int, Comm*> comms;
    std::map<int64_t, Meeting> meetings;
    int num_finalized = 0;
  };
  struct Launch {
    Op op;
    int64_t sequence = 0;
    Stream stream;
  };
  struct Comm {
    FakeDevice* device = nullptr;
    Clique* clique = nullptr;
    int rank = 0;
    int64_t num_ops = 0;
    std::vector<Launch> prepared;  // until it has been asked how it is
    int looks_left = 0;            // before it is through
    bool finalized = false;
    bool aborted = false;
    int calls = 0;  // under way
  };
  class OneCall;

  NcclResult Init(FakeDevice& device, NcclComm* comm, int num_ranks,
                  const NcclId& id, int rank);
  NcclResult State(Comm& comm, NcclResult* state);
  NcclResult Prepare(Comm& comm, const Op& op, void* stream);
  NcclResult Abort(Comm& comm);
  void RunOp(Comm& comm, const Launch& launch);
  static bool Agree(const Meeting& meeting);
  static void Compute(Meeting& meeting);

  mutable Mutex mutex_;
  std::map<std::string, Clique> cliques_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Comm>> comms_ ABSL_GUARDED_BY(mutex_);
  std::map<int, NcclResult> broken_ ABSL_GUARDED_BY(mutex_);
  std::set<int> no_buffers_ ABSL_GUARDED_BY(mutex_);
  bool hang_init_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_launches_ ABSL_GUARDED_BY(mutex_) = false;
  bool hang_aborts_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  int num_ids_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_aborts_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_destroyed_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_registered_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_launched_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_FAKE_NCCL_H_
