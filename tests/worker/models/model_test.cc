#include "worker/models/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "worker/torch/tensors.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageShape kMnist = {1, 28, 28, 10};
constexpr ImageShape kCifar10 = {3, 32, 32, 10};
constexpr ImageShape kImageNet = {3, 224, 224, 1000};

std::unique_ptr<Classifier> Created(absl::string_view spec,
                                    const ImageShape& shape,
                                    uint64_t seed = 0) {
  auto model = CreateModel(spec, shape, seed);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

int64_t NumParameters(const Classifier& model) {
  int64_t count = 0;
  for (const NamedTensor& named : model.parameters()) {
    count += named.tensor.numel();
  }
  return count;
}

// "fc1.weight [50, 320]", in order of registration.
std::vector<std::string> Parameters(const Classifier& model) {
  std::vector<std::string> list;
  for (const NamedTensor& named : model.parameters()) {
    std::ostringstream line;
    line << named.name << " " << named.tensor.sizes();
    list.push_back(line.str());
  }
  return list;
}

class ModelTest : public ::testing::Test {
 protected:
  // Threads that wait for each other cost more than they save on small images.
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

at::Tensor Noise(const ImageShape& shape, int64_t batch) {
  return at::randn({batch, shape.channels, shape.height, shape.width});
}

TEST_F(ModelTest, LeNetIsTheNetworkOfPyTorchsExample) {
  const auto model = Created("lenet", kMnist);
  EXPECT_EQ(NumParameters(*model), 21840);
  EXPECT_THAT(Parameters(*model),
              ElementsAre("conv1.weight [10, 1, 5, 5]", "conv1.bias [10]",
                          "conv2.weight [20, 10, 5, 5]", "conv2.bias [20]",
                          "fc1.weight [50, 320]", "fc1.bias [50]",
                          "fc2.weight [10, 50]", "fc2.bias [10]"));
}

TEST_F(ModelTest, LeNetAdaptsToOtherImages) {
  EXPECT_THAT(Parameters(*Created("lenet", kCifar10)),
              ::testing::Contains("fc1.weight [50, 500]"));
  EXPECT_TRUE(CreateModel("lenet", {1, 16, 17, 2}, 0).ok());
}

TEST_F(ModelTest, MlpHasALayerBetweenEveryTwoSizes) {
  EXPECT_THAT(Parameters(*Created("mlp:784-30-20-10", kMnist)),
              ElementsAre("fc1.weight [30, 784]", "fc1.bias [30]",
                          "fc2.weight [20, 30]", "fc2.bias [20]",
                          "fc3.weight [10, 20]", "fc3.bias [10]"));
  EXPECT_THAT(Parameters(*Created("mlp:3072-10", kCifar10)),
              ElementsAre("fc1.weight [10, 3072]", "fc1.bias [10]"));
}

TEST_F(ModelTest, ResNetsHaveTorchvisionsParameters) {
  const auto resnet18 = Created("resnet18", kImageNet);
  EXPECT_EQ(NumParameters(*resnet18), 11689512);
  EXPECT_EQ(resnet18->parameters().size(), 62u);
  EXPECT_EQ(resnet18->buffers().size(), 60u);
  const auto names = Parameters(*resnet18);
  EXPECT_EQ(names[0], "conv1.weight [64, 3, 7, 7]");
  EXPECT_EQ(names[1], "bn1.weight [64]");
  EXPECT_EQ(names[3], "layer1.0.conv1.weight [64, 64, 3, 3]");
  EXPECT_EQ(names[20], "layer2.0.bn2.bias [128]");
  EXPECT_EQ(names[21], "layer2.0.downsample.0.weight [128, 64, 1, 1]");
  EXPECT_EQ(names[22], "layer2.0.downsample.1.weight [128]");
  EXPECT_EQ(names[61], "fc.bias [1000]");

  const auto resnet50 = Created("resnet50", kImageNet);
  EXPECT_EQ(NumParameters(*resnet50), 25557032);
  EXPECT_EQ(resnet50->parameters().size(), 161u);
  EXPECT_THAT(
      Parameters(*resnet50),
      AllOf(::testing::Contains("layer1.0.downsample.0.weight [256, 64, 1, 1]"),
            ::testing::Contains("layer3.5.conv3.weight [1024, 256, 1, 1]"),
            ::testing::Contains("fc.weight [1000, 2048]")));
}

TEST_F(ModelTest, ResNetsDrawTheVarianceThatKeepsGradients) {
  const auto model = Created("resnet18", kCifar10);
  const NamedTensor& drawn = model->parameters()[45];
  ASSERT_EQ(drawn.name, "layer4.0.conv1.weight");
  const at::Tensor weight = drawn.tensor.detach();
  // Fan-out: 512 filters of 3x3; 256 channels come in.
  EXPECT_NEAR(weight.std().item<double>(), std::sqrt(2.0 / (512 * 9)), 1e-4);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 1e-4);
}

TEST_F(ModelTest, EveryModelGivesLogProbabilities) {
  const struct {
    const char* spec;
    ImageShape shape;
  } kRows[] = {
      {"lenet", kMnist},         {"lenet", kCifar10},
      {"mlp:784-20-10", kMnist}, {"mlp:3072-10", kCifar10},
      {"resnet18", kMnist},      {"resnet18", kCifar10},
      {"resnet50", kMnist},      {"resnet50", {4, 33, 47, 3}},
  };
  for (const auto& row : kRows) {
    const auto model = Created(row.spec, row.shape);
    const at::Tensor out = model->Forward(Noise(row.shape, 2));
    EXPECT_THAT(out.sizes(), ElementsAre(2, row.shape.num_classes));
    EXPECT_TRUE(at::allclose(out.exp().sum(1), at::ones({2}))) << row.spec;
  }
}

TEST_F(ModelTest, EveryParameterGetsAGradient) {
  for (const char* spec : {"lenet", "mlp:784-20-10", "resnet18", "resnet50"}) {
    const auto model = Created(spec, kMnist);
    const at::Tensor out = model->Forward(Noise(kMnist, 4));
    MeanNllLoss(out, at::tensor({0, 1, 2, 3}, at::kLong)).backward();
    for (const NamedTensor& named : model->parameters()) {
      const at::Tensor gradient = named.tensor.grad();
      ASSERT_TRUE(gradient.defined()) << spec << " " << named.name;
      EXPECT_GT(gradient.abs().sum().item<double>(), 0)
          << spec << " " << named.name;
    }
  }
}

TEST_F(ModelTest, DropsOutInTrainingOnly) {
  const auto model = Created("lenet", kMnist);
  const at::Tensor images = Noise(kMnist, 4);
  EXPECT_FALSE(model->Forward(images).equal(model->Forward(images)));
  model->set_training(false);
  EXPECT_TRUE(model->Forward(images).equal(model->Forward(images)));
  const auto without = Created("lenet:dropout=0", kMnist);
  EXPECT_TRUE(without->Forward(images).equal(without->Forward(images)));
}

TEST_F(ModelTest, DrawsTheSameWeightsForTheSameSeed) {
  for (const char* spec : {"lenet", "mlp:784-20-10", "resnet18"}) {
    const auto a = Created(spec, kMnist, 7)->parameters();
    at::randn({5});  // moves the generator
    const auto b = Created(spec, kMnist, 7)->parameters();
    const auto c = Created(spec, kMnist, 8)->parameters();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i].tensor.equal(b[i].tensor)) << spec;
    }
    EXPECT_FALSE(a[0].tensor.equal(c[0].tensor)) << spec;
  }
}

TEST_F(ModelTest, AnErrorNamesThePartAtFault) {
  const struct {
    const char* spec;
    ImageShape shape;
    const char* culprit;
  } kRows[] = {
      {"alexnet", kMnist, "Known: lenet[:dropout=0.5], mlp:784"},
      {"", kMnist, "Known: lenet"},
      {"lenet:5", kMnist, "Known: lenet"},
      {"lenet:dropout=1", kMnist, "dropout is '1', expected 0 to 1"},
      {"resnet", kMnist, "Known: lenet"},
      {"lenet", {1, 15, 28, 10}, "at least 16x16 pixels, these are 1x15x28"},
      {"lenet", {1, 28, 15, 10}, "at least 16x16 pixels, these are 1x28x15"},
      {"lenet", {1, 28, 0, 10}, "1x28x0"},
      {"resnet18", {3, 8, 8, 0}, "0 classes"},
      {"mlp:784--10", kMnist, "size 2 is ''"},
      {"mlp:784-2048x-10", kMnist, "size 2 is '2048x'"},
      {"mlp:784-0-10", kMnist, "size 2 is '0'"},
      {"mlp:784-99999999999-10", kMnist, "size 2 is '99999999999'"},
      {"mlp", kMnist, "needs its sizes, two or more"},
      {"mlp:784", kMnist, "Write e.g. mlp:784-2048-2048-10"},
      {"mlp:3072-10", kMnist,
       "takes 3072 values, but an image of 1x28x28 has "
       "784"},
      {"mlp:784-11", kMnist, "ends in 11 classes, but the data has 10"},
  };
  for (const auto& row : kRows) {
    const auto model = CreateModel(row.spec, row.shape, 0);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()),
                AllOf(HasSubstr(row.culprit),
                      HasSubstr("model '" + std::string(row.spec) + "'")));
  }
}

TEST_F(ModelTest, WhatLibtorchThrowsBecomesAStatus) {
  // More weights than an int64_t counts.
  const ImageShape shape = {int64_t{1} << 58, 28, 28, 10};
  const auto model = CreateModel("resnet18", shape, 0);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInternal);
  const std::string message(model.status().message());
  EXPECT_THAT(message, HasSubstr("model 'resnet18'"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("frame #")));
}

}  // namespace
}  // namespace psring
