// How a worker's batches are made, where the flags leave it open.
#ifndef PSRING_WORKER_LOADER_CHOICE_H_
#define PSRING_WORKER_LOADER_CHOICE_H_

#include "worker/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/worker_gpu.h"

namespace psring {

// `given`: threads (0: left open) and channels_last, which stay as they are.
// `cores`: the worker's share of its host's. `gpu`: null: it computes on cores.
LoaderOptions ChooseLoader(LoaderOptions given, const Dataset& train, int cores,
                           WorkerGpu* gpu);

}  // namespace psring

#endif  // PSRING_WORKER_LOADER_CHOICE_H_
