// The first and the last line of a worker's metrics.
#ifndef PSRING_WORKER_WORKER_RECORDS_H_
#define PSRING_WORKER_WORKER_RECORDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/optim/job_plan.h"
#include "protos/cluster.pb.h"
#include "worker/trainer.h"
#include "worker/worker_gpu.h"

namespace psring {

// What the run is.
nlohmann::json StartDetails(const proto::Welcome& job, const JobPlan& plan,
                            int64_t num_parameters, bool on_gpu);

// What it has taken: times in seconds, of a step the means; bytes. `gpu`: null
// where there is none.
nlohmann::json EndLine(const Trainer& trainer, const Traffic& traffic,
                       const FlatModel& flat, WorkerGpu* gpu);

}  // namespace psring

#endif  // PSRING_WORKER_WORKER_RECORDS_H_
