// A module's parameters as views into a FlatModel, its gradients copied there
// as backward makes them, and the moment at which each bucket's are ready.
//
// .grad as a view of the flat gradients would cost more than the copy: backward
// adds to what is there, which has to be zeroed before and read again.
#ifndef PSRING_WORKER_FLAT_PARAMETERS_H_
#define PSRING_WORKER_FLAT_PARAMETERS_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/flat_model.h"
#include "protos/cluster.pb.h"
#include "worker/models/module.h"

namespace psring {

// Name and shape of every parameter, in the module's order.
std::vector<proto::TensorShape> ShapesOf(const Module& module);

// Where the flat buffers lie that a module's tensors are views of.
struct FlatMemory {
  c10::Device device;
  float* parameters;
  float* gradients;
};

// The host's own.
FlatMemory MemoryOf(FlatModel& model);

class FlatParameters {
 public:
  using OnBucketReady = std::function<void(int bucket)>;

  // Moves the module's values into `memory`, which `layout` (made of ShapesOf)
  // describes, and makes its parameters views of it; its other tensors move to
  // that device too. During backward, on_bucket_ready is called once a bucket,
  // in the order in which buckets fill, on the thread that runs backward. On a
  // GPU a bucket is ready in the order of the compute stream, and its gradients
  // are copied by one call, not each as it is made: a call costs more than its
  // copy (`by_bucket`; null: on GPUs). `module`, `layout` and the memory
  // outlive this.
  FlatParameters(const Module& module, const Layout& layout,
                 const FlatMemory& memory, OnBucketReady on_bucket_ready,
                 std::optional<bool> by_bucket = std::nullopt);
  ~FlatParameters();

  // After each backward pass: the gradient of parameters that took no part in
  // it is zero; reports their buckets.
  void FinishBackward();

 private:
  struct Tensor;

  void OnGradientReady(int tensor);
  // Copies what waits for it.
  void CopyBucket(int bucket);
  void Expect();

  const Layout& layout_;
  const OnBucketReady on_bucket_ready_;
  const bool by_bucket_;
  std::vector<Tensor> tensors_;
  std::vector<int> missing_;  // by bucket, of this backward pass
  // By bucket: gradients that have not been copied, and where to.
  std::vector<std::vector<at::Tensor>> from_, to_;
};

}  // namespace psring

#endif  // PSRING_WORKER_FLAT_PARAMETERS_H_
