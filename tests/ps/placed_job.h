// Jobs of a small model, whose workers and servers share memory or do not.
#ifndef PSRING_TESTS_PS_PLACED_JOB_H_
#define PSRING_TESTS_PS_PLACED_JOB_H_

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {

using Finals = std::vector<std::vector<float>>;

inline Finals Train(const LocalJobOptions& options, int steps) {
  Finals finals(options.num_workers);
  for (const absl::Status& s :
       RunLocalJob(options, TrainBody(steps, &finals))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

inline LocalJobOptions Options(proto::Mode mode, proto::Sync sync, int workers,
                               int servers = 1) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, sync);
  options.num_workers = workers;
  options.num_servers = servers;
  return options;
}

// Adds what keeps two shards of each of two servers busy.
inline void AddPieces(proto::JobSpec& spec) {
  proto::TensorShape* tensor = spec.add_tensors();
  tensor->set_name("large");
  tensor->add_shape(70000);
}

// Whose memory is shared, and whose payload travels in messages.
enum class Transport {
  kMessages,
  kSharedMemory,
  kMixed,     // one worker sends messages
  kOneSided,  // servers reach the workers, but not the other way round
};
inline constexpr Transport kTransports[] = {
    Transport::kMessages, Transport::kSharedMemory, Transport::kMixed,
    Transport::kOneSided};

inline LocalJobOptions Placed(LocalJobOptions options, Transport transport) {
  options.same_host =
      transport == Transport::kMessages ? SameHost::kOff : SameHost::kAuto;
  options.servers_publish = transport != Transport::kOneSided;
  if (transport == Transport::kMixed) {
    options.same_host_of = [](int index) {
      return index == 1 ? SameHost::kOff : SameHost::kAuto;
    };
  }
  return options;
}

// Submits every bucket, and finishes the step.
inline absl::Status Push(LocalWorker& worker) {
  for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
    if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
  }
  return worker.exchange->Finish(Soon());
}

inline std::vector<float> ParametersOf(const LocalWorker& worker) {
  const FlatBuffer& p = worker.model.parameters;
  return {p.data(), p.data() + p.size()};
}

}  // namespace psring

#endif  // PSRING_TESTS_PS_PLACED_JOB_H_
