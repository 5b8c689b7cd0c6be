// Our optimizers against torch.optim's of the same name.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/optim/optimizer.h"

namespace psring {
namespace {

constexpr int64_t kElements = 10'000;
constexpr int kUpdates = 100;

struct Case {
  const char* name;
  double lr;
  double momentum;
  double weight_decay;
};

std::unique_ptr<torch::optim::Optimizer> MakeTorch(const Case& c,
                                                   torch::Tensor parameters) {
  const std::vector<torch::Tensor> list = {std::move(parameters)};
  const std::string name = c.name;
  if (name == "adam") {
    auto options = torch::optim::AdamOptions(c.lr);
    return std::make_unique<torch::optim::Adam>(
        list, options.weight_decay(c.weight_decay));
  }
  if (name == "adamw") {
    auto options = torch::optim::AdamWOptions(c.lr);
    return std::make_unique<torch::optim::AdamW>(
        list, options.weight_decay(c.weight_decay));
  }
  auto options = torch::optim::SGDOptions(c.lr);
  options.momentum(c.momentum).nesterov(name == "nesterov");
  return std::make_unique<torch::optim::SGD>(
      list, options.weight_decay(c.weight_decay));
}

Optimizer MakeOurs(const Case& c) {
  proto::OptimizerSettings settings;
  settings.set_name(c.name);
  settings.set_lr(c.lr);
  settings.set_momentum(c.momentum);
  settings.set_weight_decay(c.weight_decay);
  settings.set_beta1(0.9);
  settings.set_beta2(0.999);
  settings.set_epsilon(1e-8);
  absl::StatusOr<Optimizer> optimizer = Optimizer::Create(settings);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// |ours - torch's| / |torch's|, Euclidean norms over all parameters: those that
// pass close to 0 have no relative error of their own to speak of.
double RelativeError(const std::vector<float>& ours, const float* torchs) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    difference += std::pow(double{ours[i]} - torchs[i], 2);
    norm += std::pow(double{torchs[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class OptimizerTorchTest : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizerTorchTest, AgreesOverAHundredUpdates) {
  const Case& c = GetParam();
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> parameters(kElements), gradient(kElements);
  for (float& value : parameters) value = normal(random);
  torch::Tensor theirs = torch::from_blob(parameters.data(), {kElements});
  theirs = theirs.clone().set_requires_grad(true);
  theirs.mutable_grad() = torch::zeros({kElements});
  const auto torch_optimizer = MakeTorch(c, theirs);

  const Optimizer optimizer = MakeOurs(c);
  std::vector<std::vector<float>> slots(optimizer.num_slots(),
                                        std::vector<float>(kElements, 0));
  std::vector<float*> pointers;
  for (std::vector<float>& slot : slots) pointers.push_back(slot.data());

  for (int update = 1; update <= kUpdates; ++update) {
    for (float& value : gradient) value = normal(random);
    std::copy(gradient.begin(), gradient.end(),
              theirs.mutable_grad().data_ptr<float>());
    torch_optimizer->step();
    optimizer.Update(update, c.lr, gradient.data(), parameters.data(), pointers,
                     kElements);
    ASSERT_LE(RelativeError(parameters, theirs.data_ptr<float>()), 1e-6)
        << "update " << update;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerTorchTest,
    ::testing::Values(Case{"sgd", 0.1, 0, 0}, Case{"sgd", 0.1, 0, 1e-2},
                      Case{"momentum", 0.05, 0.9, 0},
                      Case{"momentum", 0.05, 0.9, 1e-2},
                      Case{"nesterov", 0.05, 0.9, 1e-2},
                      Case{"adam", 1e-2, 0, 0}, Case{"adam", 1e-2, 0, 1e-2},
                      Case{"adamw", 1e-2, 0, 1e-2}),
    [](const auto& info) {
      return std::string(info.param.name) +
             (info.param.weight_decay > 0 ? "WithDecay" : "");
    });

}  // namespace
}  // namespace psring
