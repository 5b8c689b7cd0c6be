// Ranks as threads, each with a fake GPU, over a fake NCCL and a control plane
// of one function.
#ifndef PSRING_TESTS_TESTING_NCCL_JOB_H_
#define PSRING_TESTS_TESTING_NCCL_JOB_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_communicator.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/fake_nccl.h"

namespace psring {

// What the coordinator does for Member::Gather.
class FakeGather {
 public:
  explicit FakeGather(int num_ranks) : num_ranks_(num_ranks) {}

  // A rank's own; a late one is named, a cancelled process's wait ends.
  GatherFunction Of(int rank, const Cancellation& cancellation);
  // All ranks hear of it.
  void TellLate(int64_t sequence);
  // What that rank has not heard yet.
  std::optional<int64_t> ToldLate(int rank);

 private:
  absl::StatusOr<std::vector<std::string>> Gather(
      int rank, const Cancellation& cancellation, const std::string& name,
      const std::string& payload, Time deadline);

  const int num_ranks_;
  Mutex mutex_;
  std::map<std::string, std::map<int, std::string>> contributions_
      ABSL_GUARDED_BY(mutex_);
  std::map<int, int64_t> late_ ABSL_GUARDED_BY(mutex_);  // by rank
};

struct NcclRank {
  explicit NcclRank(int r) : rank(r), device(r) {}

  const int rank;
  FakeDevice device;
  Cancellation cancellation;
  proto::Welcome job;
  NcclOptions options;
};

class NcclJob {
 public:
  // `spec` is the job's. A test may change the ranks' options before Run.
  explicit NcclJob(int num_ranks, const proto::JobSpec& spec = {});

  FakeNccl& nccl() { return nccl_; }
  NcclRank& rank(int r) { return *ranks_[r]; }

  // `body` once a rank, each on its own thread.
  void Run(const std::function<void(NcclRank&)>& body);
  // The same with a connected communicator, which is not ended before all
  // bodies are through.
  void RunConnected(
      const std::function<void(NcclRank&, NcclCommunicator&)>& body);

  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(NcclRank& rank,
                                                            Time deadline);
  // Blocks until all ranks have called it, which they do once.
  void AwaitAll();

 private:
  FakeNccl nccl_;
  FakeGather gather_;
  std::vector<std::unique_ptr<NcclRank>> ranks_;  // end before nccl_
  Mutex mutex_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_NCCL_JOB_H_
