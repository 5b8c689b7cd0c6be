// Prepares the samples of the next step while this one computes.
#ifndef PSRING_WORKER_BATCH_LOADER_H_
#define PSRING_WORKER_BATCH_LOADER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "worker/batch.h"
#include "worker/data/dataset.h"

namespace psring {

struct LoaderOptions {
  at::Device device = at::kCPU;
  // That fill buffers beside the caller's; 0: batches are made when they are
  // asked for.
  int threads = 0;
  // Where images become float32: false: in the buffers; true: on the device, to
  // which one byte a pixel goes.
  bool normalise_on_device = false;
  // Keeps all pixels on the device: a small data set.
  bool resident = false;
  bool channels_last = false;
};

// The samples have the same bits whatever the options. Called by one thread;
// the data set outlives it.
class BatchLoader {
 public:
  BatchLoader(const Dataset& dataset, const LoaderOptions& options);
  ~BatchLoader();

  // What Load will be asked for next, most likely; begins to prepare it.
  void Prepare(std::vector<int64_t> indices);

  // The samples in this order, on the device. Waits for what is being prepared,
  // and helps. Throws as BatchOf does.
  Batch Load(absl::Span<const int64_t> indices);

 private:
  // Samples on their way into host memory, in shares of a few.
  struct Job {
    std::vector<int64_t> indices;
    at::Tensor images;  // kFloat, or kByte
    at::Tensor labels;
    int64_t num_taken = 0;
    int64_t num_done = 0;
  };

  std::unique_ptr<Job> NewJob(absl::Span<const int64_t> indices) const;
  // Fills the next share; false: none is left.
  bool Work() ABSL_LOCKS_EXCLUDED(mutex_);
  void Fill(Job& job, int64_t begin, int64_t end) const;
  void Run();
  Batch ToDevice(const Job& job) const;
  Batch FromResident(absl::Span<const int64_t> indices) const;
  at::Tensor Normalised(const at::Tensor& pixels) const;
  Batch InFormat(Batch batch) const;

  // Fixed after construction.
  const Dataset& dataset_;
  const LoaderOptions options_;
  at::Tensor pixels_, labels_;  // of all samples, on the device, where resident
  at::Tensor mean_, stddev_;    // [channels, 1, 1], on the device

  Mutex mutex_;
  std::unique_ptr<Job> job_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace psring

#endif  // PSRING_WORKER_BATCH_LOADER_H_
