// Prepares the samples of the next step while this one computes.
#ifndef PSRING_WORKER_BATCH_LOADER_H_
#define PSRING_WORKER_BATCH_LOADER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "worker/data/dataset.h"

namespace psring {

// What a step works on.
struct Samples {
  std::vector<int64_t> indices;
  uint64_t draw = 0;  // decides what is random about the images of a source

  friend bool operator==(const Samples& a, const Samples& b) = default;
};

// Samples as the tensors that a model takes.
struct Batch {
  at::Tensor images;  // float32 [batch, channels, height, width], normalised
  at::Tensor labels;  // int64 [batch]
};

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

// Batches have the same bits whatever the options. Called by one thread; the
// data set outlives it. An index that the data set has not is a bug and throws;
// so does libtorch.
class BatchLoader {
 public:
  BatchLoader(const Dataset& dataset, const LoaderOptions& options);
  ~BatchLoader();

  // What Load will be asked for next, most likely; begins to prepare it.
  void Prepare(Samples samples);

  // The samples in this order, on the device. Waits for what is being prepared,
  // and helps. Errors: those of the data set's source.
  absl::StatusOr<Batch> Load(const Samples& samples);

 private:
  // Samples on their way into host memory, in shares of a few.
  struct Job {
    int64_t size() const {
      return static_cast<int64_t>(samples.indices.size());
    }

    Samples samples;
    at::Tensor images;  // kFloat, or kByte
    at::Tensor labels;
    int64_t num_taken = 0;
    int64_t num_done = 0;
    absl::Status status;  // the first error of a share
  };

  std::unique_ptr<Job> NewJob(Samples samples) const;
  // Makes it the job.
  void Post(Samples samples) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsPrepared(const Samples& samples) ABSL_LOCKS_EXCLUDED(mutex_);
  // Fills the next share; false: none is left.
  bool Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Fill(Job& job, int64_t begin, int64_t end) const;
  void Run();
  // Ends its threads; the last call.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Page-locked for a GPU, which then copies by itself.
  at::Tensor OnHost(at::IntArrayRef shape, at::ScalarType type) const;
  // On the device, behind what its stream holds. libtorch keeps page-locked
  // memory for itself until the copy is done.
  at::Tensor Moved(const at::Tensor& tensor) const;
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
