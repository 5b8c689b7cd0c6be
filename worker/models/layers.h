// What models are made of: PyTorch's layers, with its first weights drawn in
// its order, and its functions. Of the models, only layers.cc sees libtorch's
// operators. All throw what libtorch throws.
#ifndef PSRING_WORKER_MODELS_LAYERS_H_
#define PSRING_WORKER_MODELS_LAYERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/models/gather_statistics.h"
#include "worker/models/module.h"

namespace psring {

// torch.nn.Linear(in, out)
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

struct Conv2dOptions {
  int64_t in = 0;      // channels
  int64_t out = 0;     // channels
  int64_t kernel = 1;  // side
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = true;
};

// torch.nn.Conv2d
class Conv2d : public Module {
 public:
  explicit Conv2d(const Conv2dOptions& options);
  at::Tensor operator()(const at::Tensor& x) const;

  // Draws the weights anew, by kaiming_normal_ with mode="fan_out": He et al.
  // 2015, "Delving Deep into Rectifiers", preserving the variance of the
  // gradients.
  void DrawForFanOut();

 private:
  Conv2dOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;  // undefined: none
};

// torch.nn.BatchNorm2d(channels)
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels);
  at::Tensor operator()(const at::Tensor& x, bool training) const;

  // From now on training normalises with all workers' batches
  // (worker/models/sync_batch_norm.h). `gather` outlives the layer's use.
  void Synchronise(GatherStatistics& gather) { gather_ = &gather; }

 private:
  at::Tensor weight_, bias_;
  at::Tensor mean_, variance_, num_batches_;
  GatherStatistics* gather_ = nullptr;  // null: this worker's batch
};

struct Pooling {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
};
at::Tensor MaxPool2d(const at::Tensor& x, const Pooling& pooling);
// The mean of each channel: [batch, channels].
at::Tensor GlobalMeanPool2d(const at::Tensor& x);

// Of scores [batch, classes]: in float32, whatever the layers computed in.
at::Tensor LogProbabilities(const at::Tensor& scores);

// That part of the values, or of the channels, becomes zero.
at::Tensor Dropout(const at::Tensor& x, double dropped, bool training);
at::Tensor FeatureDropout(const at::Tensor& x, double dropped, bool training);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_LAYERS_H_
