#include "common/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Floats = std::vector<float>;

proto::OptimizerSettings Settings(const std::string& name) {
  proto::OptimizerSettings settings;
  settings.set_name(name);
  settings.set_lr(0.1);
  if (name == "momentum" || name == "nesterov") settings.set_momentum(0.9);
  settings.set_weight_decay(0.01);
  settings.set_beta1(0.9);
  settings.set_beta2(0.999);
  settings.set_epsilon(1e-8);
  return settings;
}

std::string Error(const proto::OptimizerSettings& settings) {
  return std::string(Optimizer::Create(settings).status().message());
}

Floats RandomFloats(int64_t size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// Parameters and slots of one model, updated in the given ranges.
struct State {
  State(const Optimizer& optimizer, Floats initial)
      : parameters(std::move(initial)),
        slots(optimizer.num_slots(), Floats(parameters.size(), 0)) {}

  void Update(const Optimizer& optimizer, int64_t update,
              const Floats& gradient, int64_t begin, int64_t end) {
    std::vector<float*> pointers;
    for (Floats& slot : slots) pointers.push_back(slot.data() + begin);
    optimizer.Update(update, 0.05, gradient.data() + begin,
                     parameters.data() + begin, pointers, end - begin);
  }

  Floats parameters;
  std::vector<Floats> slots;
};

class EveryOptimizer : public ::testing::TestWithParam<const char*> {
 protected:
  const Optimizer optimizer_ = *Optimizer::Create(Settings(GetParam()));
  std::mt19937 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer,
                         ::testing::Values("sgd", "momentum", "nesterov",
                                           "adam", "adamw"));

TEST_P(EveryOptimizer, GivesTheSameBitsForAnyCutIntoRanges) {
  const int64_t size = 1003;
  const Floats initial = RandomFloats(size, random_);
  State whole(optimizer_, initial), cut(optimizer_, initial);
  for (int64_t update = 1; update <= 20; ++update) {
    const Floats gradient = RandomFloats(size, random_);
    whole.Update(optimizer_, update, gradient, 0, size);
    for (int64_t begin = 0; begin < size;) {
      const int64_t end = std::min<int64_t>(size, begin + random_() % 100);
      cut.Update(optimizer_, update, gradient, begin, end);
      begin = end;
    }
  }
  EXPECT_EQ(cut.parameters, whole.parameters);
  EXPECT_EQ(cut.slots, whole.slots);
}

TEST_P(EveryOptimizer, AcceptsAnUnalignedGradientAndLeavesItAlone) {
  const Floats initial = RandomFloats(100, random_);
  const Floats gradient = RandomFloats(100, random_);
  State expected(optimizer_, initial), state(optimizer_, initial);
  expected.Update(optimizer_, 1, gradient, 0, 100);
  std::vector<char> frame(401);
  std::memcpy(frame.data() + 1, gradient.data(), 400);
  const std::vector<char> before = frame;
  std::vector<float*> pointers;
  for (Floats& slot : state.slots) pointers.push_back(slot.data());
  optimizer_.Update(1, 0.05, frame.data() + 1, state.parameters.data(),
                    pointers, 100);
  EXPECT_EQ(state.parameters, expected.parameters);
  EXPECT_EQ(frame, before);
}

TEST_P(EveryOptimizer, KeepsZerosWhereGradientsAreZero) {
  State state(optimizer_, Floats(50, 0));
  for (int64_t update = 1; update <= 3; ++update) {
    state.Update(optimizer_, update, Floats(50, 0), 0, 50);
  }
  EXPECT_EQ(state.parameters, Floats(50, 0));
}

TEST_P(EveryOptimizer, ChangesNothingInAnEmptyRange) {
  State state(optimizer_, {1, 2, 3});
  state.Update(optimizer_, 1, {4, 5, 6}, 1, 1);
  EXPECT_EQ(state.parameters, (Floats{1, 2, 3}));
}

// The formulas of optimizer.h, one float at a time.
TEST(OptimizerTest, NesterovEqualsItsFormulaBitForBit) {
  std::mt19937 random(8);
  const Optimizer optimizer = *Optimizer::Create(Settings("nesterov"));
  const Floats initial = RandomFloats(501, random);
  State state(optimizer, initial);
  Floats p = initial, b(501, 0);
  for (int64_t update = 1; update <= 5; ++update) {
    const Floats gradient = RandomFloats(501, random);
    state.Update(optimizer, update, gradient, 0, 501);
    for (int i = 0; i < 501; ++i) {
      const float g = gradient[i] + 0.01f * p[i];
      b[i] = 0.9f * b[i] + g;
      p[i] = p[i] - 0.05f * (g + 0.9f * b[i]);
    }
  }
  EXPECT_EQ(state.parameters, p);
  EXPECT_EQ(state.slots[0], b);
}

TEST(OptimizerTest, AdamWEqualsItsFormulaBitForBit) {
  std::mt19937 random(9);
  const Optimizer optimizer = *Optimizer::Create(Settings("adamw"));
  const Floats initial = RandomFloats(501, random);
  State state(optimizer, initial);
  Floats p = initial, m(501, 0), v(501, 0);
  for (int64_t update = 1; update <= 5; ++update) {
    const Floats gradient = RandomFloats(501, random);
    state.Update(optimizer, update, gradient, 0, 501);
    const float keep = 1 - 0.05 * 0.01;
    const float step_size = 0.05 / (1 - std::pow(0.9, update));
    const float bias2 = std::sqrt(1 - std::pow(0.999, update));
    for (int i = 0; i < 501; ++i) {
      const float g = gradient[i];
      m[i] = 0.9f * m[i] + static_cast<float>(1 - 0.9) * g;
      v[i] = 0.999f * v[i] + static_cast<float>(1 - 0.999) * (g * g);
      p[i] =
          keep * p[i] - step_size * (m[i] / (std::sqrt(v[i]) / bias2 + 1e-8f));
    }
  }
  EXPECT_EQ(state.parameters, p);
  EXPECT_EQ(state.slots, (std::vector<Floats>{m, v}));
}

// p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon), with
// an epsilon as large as gradients.
TEST(OptimizerTest, AdamWithEpsilonHatIsThatOfKeras) {
  std::mt19937 random(9);
  proto::OptimizerSettings settings = Settings("adam");
  settings.set_weight_decay(0);
  settings.set_epsilon(0.5);
  settings.set_epsilon_hat(true);
  const Optimizer optimizer = *Optimizer::Create(settings);
  const Floats initial = RandomFloats(501, random);
  State state(optimizer, initial);
  std::vector<double> p(initial.begin(), initial.end()), m(501, 0), v(501, 0);
  for (int64_t update = 1; update <= 5; ++update) {
    const Floats gradient = RandomFloats(501, random);
    state.Update(optimizer, update, gradient, 0, 501);
    const double rate = 0.05 * std::sqrt(1 - std::pow(0.999, update)) /
                        (1 - std::pow(0.9, update));
    for (int i = 0; i < 501; ++i) {
      const double g = gradient[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] -= rate * m[i] / (std::sqrt(v[i]) + 0.5);
    }
  }
  for (int i = 0; i < 501; ++i) EXPECT_NEAR(state.parameters[i], p[i], 1e-5);
}

TEST(OptimizerTest, NamesItsSlotsAsTorchDoes) {
  const auto slots = [](const char* name) {
    return Optimizer::Create(Settings(name))->slot_names();
  };
  EXPECT_THAT(slots("sgd"), IsEmpty());
  EXPECT_THAT(slots("momentum"), ElementsAre("momentum_buffer"));
  EXPECT_THAT(slots("nesterov"), ElementsAre("momentum_buffer"));
  EXPECT_THAT(slots("adam"), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(slots("adamw"), ElementsAre("exp_avg", "exp_avg_sq"));
}

TEST(OptimizerTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(Error(Settings("lion")),
              HasSubstr("unknown name \"lion\"; choose sgd, momentum"));
}

// Creates `name` with one field set and returns the error.
std::string ErrorWith(const char* name,
                      void (proto::OptimizerSettings::*set)(double),
                      double value) {
  proto::OptimizerSettings settings = Settings(name);
  (settings.*set)(value);
  return Error(settings);
}

TEST(OptimizerTest, SettingsOutOfRangeAreNamedWithTheRange) {
  using S = proto::OptimizerSettings;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, nan, inf, 1e39}) {
    EXPECT_THAT(ErrorWith("sgd", &S::set_lr, bad), HasSubstr("lr must be in"));
    EXPECT_THAT(ErrorWith("adamw", &S::set_weight_decay, bad),
                HasSubstr("weight_decay must be in"));
  }
  for (const double bad : {-0.1, 1.0, nan}) {
    EXPECT_THAT(ErrorWith("momentum", &S::set_momentum, bad),
                HasSubstr("momentum must be in [0, 1)"));
    EXPECT_THAT(ErrorWith("adam", &S::set_beta1, bad),
                HasSubstr("beta1 must be in [0, 1)"));
    EXPECT_THAT(ErrorWith("adamw", &S::set_beta2, bad),
                HasSubstr("beta2 must be in [0, 1)"));
  }
  for (const double bad : {-1e-8, 0.0, 1e-50, nan}) {
    EXPECT_THAT(ErrorWith("adam", &S::set_epsilon, bad),
                HasSubstr("epsilon must be in"));
  }
  EXPECT_THAT(ErrorWith("sgd", &S::set_lr, 0), IsEmpty());
}

TEST(OptimizerTest, MomentumMustFitTheName) {
  using S = proto::OptimizerSettings;
  EXPECT_THAT(ErrorWith("sgd", &S::set_momentum, 0.9),
              HasSubstr("use --optimizer=momentum"));
  EXPECT_THAT(ErrorWith("momentum", &S::set_momentum, 0),
              HasSubstr("use --optimizer=sgd"));
  EXPECT_THAT(ErrorWith("nesterov", &S::set_momentum, 0),
              HasSubstr("use --optimizer=sgd"));
}

// The mean of parameters takes their place; there is no state to it.
TEST(Optimizer, ForTheMeanOfLocalStepsAssigns) {
  proto::OptimizerSettings settings;
  settings.set_name("adam");
  settings.set_lr(0.1);
  settings.set_beta1(0.9);
  settings.set_beta2(0.999);
  settings.set_epsilon(1e-8);
  EXPECT_EQ(Optimizer::ForMean(settings, false)->num_slots(), 2);
  const auto assign = Optimizer::ForMean(settings, true);
  ASSERT_TRUE(assign.ok());
  EXPECT_EQ(assign->num_slots(), 0);
  std::vector<float> parameters = {1.0f, 2.0f, 3.0f};
  const std::vector<float> mean = {4.0f, -0.0f, 1e-40f};
  assign->Update(7, 0.5, mean.data(), parameters.data(), {}, 3);
  EXPECT_EQ(parameters, mean);
}

// Two groups with rates, decays and momenta of their own: every element has the
// bits of an optimizer of its group alone, wherever a range is cut.
TEST(Optimizer, UpdatesEveryElementByItsGroup) {
  proto::JobSpec spec;
  for (const int64_t size : {100, 7, 3000, 16}) {
    proto::TensorShape& tensor = *spec.add_tensors();
    tensor.set_name(absl::StrCat("t", spec.tensors_size()));
    tensor.add_shape(size);
  }
  for (const int group : {0, 1, 0, 0}) spec.add_tensor_groups(group);
  for (const double decay : {0.5, 0.0}) {
    proto::OptimizerSettings& group = *spec.add_groups();
    group.set_name("momentum");
    group.set_momentum(decay > 0 ? 0.9 : 0.3);
    group.set_weight_decay(decay);
  }
  const auto layout = Layout::Create(
      {spec.tensors().begin(), spec.tensors().end()}, /*bucket_bytes=*/1000);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto optimizer = Optimizer::ForJob(spec, spec.groups(0), *layout);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const int64_t n = layout->num_elements();
  const std::vector<float> gradient(n, 0.25f);
  const auto expect = [&](const std::vector<double>& rates,
                          const std::vector<double>& momenta) {
    std::vector<double> sent = rates;
    sent.insert(sent.end(), momenta.begin(), momenta.end());
    for (const Range range : {Range{0, n}, Range{64, 128}, Range{112, 1000}}) {
      std::vector<float> p(n, 2.0f), buffer(n, 1.0f);
      float* slots[] = {buffer.data() + range.begin};
      optimizer->Update(1, sent, gradient.data() + range.begin,
                        p.data() + range.begin, slots, range);
      for (int64_t i = 0; i < n; ++i) {
        float expected = 2.0f, momentum = 1.0f;
        if (i >= range.begin && i < range.end) {
          const int group =
              i >= layout->tensor(1).begin && i < layout->tensor(2).begin;
          proto::OptimizerSettings settings = spec.groups(group);
          if (!momenta.empty()) settings.set_momentum(momenta[group]);
          float* slot[] = {&momentum};
          Optimizer::Create(settings)->Update(1, rates[group], &gradient[i],
                                              &expected, slot, 1);
        }
        ASSERT_EQ(p[i], expected) << i;
        ASSERT_EQ(buffer[i], momentum) << i;
      }
    }
  };
  expect({0.1, 0.01}, {});
  expect({0.1, 0.01}, {0.6, 0.7});
}

TEST(Optimizer, RefusesAGroupsSettingsAsItsOwn) {
  proto::JobSpec spec;
  spec.add_tensors()->set_name("t");
  spec.mutable_tensors(0)->add_shape(16);
  spec.add_tensor_groups(1);
  for (int i = 0; i < 2; ++i) *spec.add_groups() = Settings("momentum");
  spec.mutable_groups(1)->set_momentum(1.5);
  const auto layout = Layout::Create({spec.tensors(0)}, /*bucket_bytes=*/1000);
  EXPECT_THAT(
      std::string(
          Optimizer::ForJob(spec, spec.groups(0), *layout).status().message()),
      HasSubstr("momentum must be in [0, 1)"));
}

TEST(Optimizer, TakesAMomentumWithTheRate) {
  for (const char* name : {"nesterov", "adam", "adamw"}) {
    proto::OptimizerSettings settings;
    settings.set_name(name);
    settings.set_momentum(0.9);
    settings.set_beta1(0.9);
    settings.set_beta2(0.99);
    settings.set_epsilon(1e-8);
    const auto update = [&](const std::vector<double>& rates) {
      float g = 0.25f, p = 2.0f, first = 1.0f, second = 1.0f;
      float* slots[] = {&first, &second};
      const auto optimizer = Optimizer::Create(settings);
      optimizer->Update(3, rates, &g, &p,
                        absl::MakeSpan(slots).first(optimizer->num_slots()),
                        {0, 1});
      return std::vector<float>{p, first, second};
    };
    const auto sent = update({0.1, 0.5}), own = update({0.1});
    EXPECT_NE(sent, own) << name;
    settings.set_momentum(0.5);
    settings.set_beta1(0.5);
    EXPECT_EQ(sent, update({0.1})) << name;
  }
}

}  // namespace
}  // namespace psring
