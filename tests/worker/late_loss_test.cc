#include "worker/late_loss.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/testing/soon.h"

namespace psring {
namespace {

at::Tensor Loss(double value) { return at::full({}, value, at::kFloat); }

TEST(LateLoss, KnowsALossAtOnceOnTheCpu) {
  const Cancellation cancellation;
  LateLoss losses(at::kCPU, cancellation);
  const auto known = *losses.Push(7, Loss(0.5), Soon());
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->step, 7);
  EXPECT_EQ(known->value, 0.5);
  EXPECT_FALSE(losses.Flush(Soon())->has_value());
}

TEST(LateLoss, KnowsEachLossAStepLateAndTheLastWhenAsked) {
  const Cancellation cancellation;
  LateLoss losses(at::kCPU, cancellation, /*late=*/true);
  at::Tensor loss = Loss(1);
  EXPECT_FALSE(losses.Push(0, loss, Soon())->has_value());
  loss.fill_(9);  // what a later step computes in the same place
  for (int step = 1; step < 5; ++step) {
    const auto known = *losses.Push(step, Loss(step + 1), Soon());
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->step, step - 1);
    EXPECT_EQ(known->value, step);
  }
  const auto last = *losses.Flush(Soon());
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->step, 4);
  EXPECT_EQ(last->value, 5);
  EXPECT_FALSE(losses.Flush(Soon())->has_value());
}

}  // namespace
}  // namespace psring
