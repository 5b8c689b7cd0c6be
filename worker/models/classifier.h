// The models' common face.
#ifndef PSRING_WORKER_MODELS_CLASSIFIER_H_
#define PSRING_WORKER_MODELS_CLASSIFIER_H_

#include <torch/nn/module.h>
#include <torch/types.h>

namespace psring {

// An image classifier. Its parameters are float32, in PyTorch's names, order
// and shapes, so that its weights load into the same model in PyTorch.
class Classifier : public torch::nn::Module {
 public:
  // float32 [batch, channels, height, width] -> log-probabilities [batch,
  // classes]; the loss is nll_loss. Throws what libtorch throws.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_CLASSIFIER_H_
