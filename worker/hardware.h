// What a job runs on, for people.
#ifndef PSRING_WORKER_HARDWARE_H_
#define PSRING_WORKER_HARDWARE_H_

#include "common/trace/event_file.h"
#include "protos/cluster.pb.h"

namespace psring {

// Each host with its processes, and of this worker's what it is made of.
TextTableRows HardwareOf(const proto::Welcome& job, bool on_gpu);

}  // namespace psring

#endif  // PSRING_WORKER_HARDWARE_H_
