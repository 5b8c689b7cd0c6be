// The models' common face.
#ifndef PSRING_WORKER_MODELS_CLASSIFIER_H_
#define PSRING_WORKER_MODELS_CLASSIFIER_H_

#include <cstdint>

#include "worker/models/gather_statistics.h"
#include "worker/models/module.h"

namespace psring {

// An image classifier. Its parameters are float32, in PyTorch's names, order
// and shapes, so that its weights load into the same model in PyTorch.
class Classifier : public Module {
 public:
  // float32 [batch, channels, height, width] -> log-probabilities [batch,
  // classes]; the loss is nll_loss. Throws what libtorch throws.
  virtual at::Tensor Forward(at::Tensor images) = 0;

  // Whether Forward drops out and batch norm learns; at first it does.
  void set_training(bool training) { training_ = training; }
  bool training() const { return training_; }

  // The fewest values of an image that batch norm takes the mean of; 0: there
  // is no batch norm.
  virtual int64_t FewestNormalised() const { return 0; }

  // From now on batch norm, if there is any, learns from all workers' batches.
  // `gather` outlives the training.
  virtual void SynchroniseBatchNorm(GatherStatistics& /*gather*/) {}

 private:
  bool training_ = true;
};

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_CLASSIFIER_H_
