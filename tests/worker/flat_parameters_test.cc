#include "worker/flat_parameters.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <memory>
#include <string>
#include <vector>

#include "worker/buffers.h"
#include "worker/models/layers.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

// Two layers, and a parameter that the forward pass may leave out.
struct Net : Module {
  Net() {
    AddParameter("unused", unused);
    AddModule("first", first);
    AddModule("second", second);
  }
  at::Tensor Forward(const at::Tensor& x) { return second(first(x)); }

  Linear first{3, 4};
  Linear second{4, 2};
  at::Tensor unused = at::ones({5});
};

FlatModel FlatOf(const Module& module, int64_t bucket_bytes) {
  return *FlatModel::Create(*Layout::Create(ShapesOf(module), bucket_bytes));
}

TEST(FlatParameters, AreViewsThatKeepTheModelsValues) {
  SeedLibtorch(1);
  Net net;
  const at::Tensor input = at::rand({2, 3});
  const at::Tensor before = net.Forward(input);
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  EXPECT_TRUE(net.Forward(input).equal(before));
  // What is written into the flat model is what the module computes with.
  for (float& p : flat.parameters.span()) p = 0.0f;
  EXPECT_EQ(net.Forward(input).abs().sum().item<float>(), 0.0f);
}

TEST(FlatParameters, GradientsLandInTheFlatModel) {
  SeedLibtorch(1);
  Net net;
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  const at::Tensor input = at::rand({2, 3});
  for (int pass = 0; pass < 2;
       ++pass) {  // the second adds nothing to the first
    net.Forward(input).sum().backward();
    parameters.FinishBackward();
    // d sum / d bias of the last layer: the batch size.
    const Range bias = flat.layout.tensor(4);
    ASSERT_EQ(flat.layout.tensors()[4].name(), "second.bias");
    EXPECT_EQ(flat.gradients.data()[bias.begin], 2.0f);
  }
}

TEST(FlatParameters, GradientsAreTheSameWhenABucketsAreCopiedAtOnce) {
  for (const int64_t bucket_bytes : {1, 40, 1 << 20}) {
    std::vector<std::vector<float>> all;
    for (const bool by_bucket : {false, true}) {
      SeedLibtorch(1);
      Net net;
      FlatModel flat = FlatOf(net, bucket_bytes);
      int num_ready = 0;
      FlatParameters parameters(
          net, flat.layout, MemoryOf(flat), [&](int) { ++num_ready; },
          by_bucket);
      for (int pass = 0; pass < 2; ++pass) {
        net.Forward(at::rand({2, 3})).pow(2).sum().backward();
        parameters.FinishBackward();
      }
      EXPECT_EQ(num_ready, 2 * flat.layout.num_buckets());
      all.emplace_back(flat.gradients.span().begin(),
                       flat.gradients.span().end());
    }
    EXPECT_EQ(all[0], all[1]);
  }
}

// How many tensors libtorch was told to copy by one call, the last time. On a
// GPU it does so only where the strides are the same.
int64_t copied_together = 0;

std::unique_ptr<at::ObserverContext> CountCopied(
    const at::RecordFunction& call) {
  if (std::string(call.name()) != "aten::_foreach_copy_") return nullptr;
  const auto to = call.inputs()[0].toTensorVector();
  const auto from = call.inputs()[1].toTensorVector();
  copied_together = static_cast<int64_t>(to.size());
  for (size_t i = 0; i < to.size(); ++i) {
    EXPECT_EQ(to[i].strides(), from[i].strides()) << i;
  }
  return nullptr;
}

TEST(CopyAll, CopiesByOneCallWhatLiesAlike) {
  const at::Tensor pixels = at::rand({2, 3, 4, 5});
  const at::Tensor pointwise = at::rand({6, 3, 1, 1});
  const std::vector<at::Tensor> from = {
      pixels.contiguous(at::MemoryFormat::ChannelsLast),
      // Its strides are others, and its elements lie where they lay.
      pointwise.as_strided({6, 3, 1, 1}, {3, 1, 3, 3}),
      at::rand({7}),
      at::rand({3, 2}).t(),
      at::rand({5}, at::kDouble),
  };
  std::vector<at::Tensor> to;
  for (const at::Tensor& value : from) {
    to.push_back(at::zeros(value.sizes(), at::kFloat));
  }
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(CountCopied).needsInputs(true));
  CopyAll(to, from);
  at::removeCallback(handle);
  for (size_t i = 0; i < to.size(); ++i) {
    EXPECT_TRUE(to[i].equal(from[i].to(at::kFloat))) << i;
  }
#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  EXPECT_EQ(copied_together, 2);
#endif
}

TEST(FlatParameters, TheGradientOfWhatTookNoPartIsZero) {
  Net net;
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  const at::Tensor input = at::rand({2, 3});
  const Range unused = flat.layout.tensor(0);
  ASSERT_EQ(flat.layout.tensors()[0].name(), "unused");
  for (const bool used : {true, false}) {
    at::Tensor loss = net.Forward(input).sum();
    if (used) loss = loss.add(net.unused.sum());
    loss.backward();
    parameters.FinishBackward();
    EXPECT_EQ(flat.gradients.data()[unused.begin], used ? 1.0f : 0.0f);
  }
}

TEST(FlatParameters, ReportsEachBucketOnceInBackwardOrder) {
  Net net;
  FlatModel flat = FlatOf(net, 1);  // a bucket a tensor
  std::vector<int> ready;
  FlatParameters parameters(net, flat.layout, MemoryOf(flat),
                            [&](int b) { ready.push_back(b); });
  for (int pass = 0; pass < 2; ++pass) {
    ready.clear();
    net.Forward(at::rand({2, 3})).sum().backward();
    const auto during_backward = ready.size();
    parameters.FinishBackward();
    // All but the unused one came while backward ran.
    EXPECT_EQ(during_backward, 4u);
    ASSERT_EQ(ready.size(), 5u);
    EXPECT_EQ(ready.back(), flat.layout.bucket_of_tensor(0));
    // The last layer's before the first's.
    EXPECT_LT(ready[0], ready[3]);
  }
}

TEST(Buffers, GoThereAndBack) {
  const BatchNorm2d norm(3);
  norm.buffers()[0].tensor.fill_(2.5f);
  norm.buffers()[2].tensor.fill_(7);
  const std::vector<ExtraTensor> saved = BuffersOf(norm);
  ASSERT_EQ(saved.size(), 3u);
  const BatchNorm2d other(3);
  ASSERT_TRUE(SetBuffers(other, saved).ok());
  ASSERT_EQ(other.buffers()[0].name, "running_mean");
  EXPECT_TRUE(other.buffers()[0].tensor.equal(norm.buffers()[0].tensor));
  ASSERT_EQ(other.buffers()[2].name, "num_batches_tracked");
  EXPECT_EQ(other.buffers()[2].tensor.item<int64_t>(), 7);
}

TEST(Buffers, OfAnotherShapeAreRefusedByName) {
  const absl::Status status =
      SetBuffers(BatchNorm2d(4), BuffersOf(BatchNorm2d(3)));
  EXPECT_NE(status.message().find("running_mean"), absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace psring
