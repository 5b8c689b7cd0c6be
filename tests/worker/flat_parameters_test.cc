#include "worker/flat_parameters.h"

#include <gtest/gtest.h>

#include <vector>

#include "worker/buffers.h"

namespace psring {
namespace {

// Two layers, and a parameter that the forward pass may leave out.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 4));
    second = register_module("second", torch::nn::Linear(4, 2));
    unused = register_parameter("unused", torch::ones({5}));
  }
  torch::Tensor forward(torch::Tensor x) { return second(first(x)); }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  torch::Tensor unused;
};

FlatModel FlatOf(const torch::nn::Module& module, int64_t bucket_bytes) {
  return *FlatModel::Create(*Layout::Create(ShapesOf(module), bucket_bytes));
}

TEST(FlatParameters, AreViewsThatKeepTheModelsValues) {
  torch::manual_seed(1);
  Net net;
  const torch::Tensor input = torch::rand({2, 3});
  const torch::Tensor before = net.forward(input);
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  EXPECT_TRUE(torch::equal(net.forward(input), before));
  // What is written into the flat model is what the module computes with.
  for (float& p : flat.parameters.span()) p = 0.0f;
  EXPECT_EQ(net.forward(input).abs().sum().item<float>(), 0.0f);
}

TEST(FlatParameters, GradientsLandInTheFlatModel) {
  torch::manual_seed(1);
  Net net;
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  const torch::Tensor input = torch::rand({2, 3});
  for (int pass = 0; pass < 2;
       ++pass) {  // the second adds nothing to the first
    net.forward(input).sum().backward();
    parameters.FinishBackward();
    // d sum / d bias of the last layer: the batch size.
    const Range bias = flat.layout.tensor(4);
    ASSERT_EQ(flat.layout.tensors()[4].name(), "second.bias");
    EXPECT_EQ(flat.gradients.data()[bias.begin], 2.0f);
  }
}

TEST(FlatParameters, TheGradientOfWhatTookNoPartIsZero) {
  Net net;
  FlatModel flat = FlatOf(net, 1 << 20);
  FlatParameters parameters(net, flat.layout, MemoryOf(flat), [](int) {});
  const torch::Tensor input = torch::rand({2, 3});
  const Range unused = flat.layout.tensor(0);
  ASSERT_EQ(flat.layout.tensors()[0].name(), "unused");
  for (const bool used : {true, false}) {
    torch::Tensor loss = net.forward(input).sum();
    if (used) loss = loss + net.unused.sum();
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
    net.forward(torch::rand({2, 3})).sum().backward();
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
  torch::nn::BatchNorm1d norm(3);
  norm->running_mean.fill_(2.5f);
  norm->num_batches_tracked.fill_(7);
  const std::vector<ExtraTensor> saved = BuffersOf(*norm);
  ASSERT_EQ(saved.size(), 3u);
  torch::nn::BatchNorm1d other(3);
  ASSERT_TRUE(SetBuffers(*other, saved).ok());
  EXPECT_TRUE(torch::equal(other->running_mean, norm->running_mean));
  EXPECT_EQ(other->num_batches_tracked.item<int64_t>(), 7);
}

TEST(Buffers, OfAnotherShapeAreRefusedByName) {
  torch::nn::BatchNorm1d three(3);
  torch::nn::BatchNorm1d four(4);
  const absl::Status status = SetBuffers(*four, BuffersOf(*three));
  EXPECT_NE(status.message().find("running_mean"), absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace psring
