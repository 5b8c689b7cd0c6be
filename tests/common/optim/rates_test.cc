#include "common/optim/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::JobSpec TwoGroups(bool momenta) {
  proto::JobSpec spec;
  spec.set_rates_from_workers(true);
  spec.set_momenta_from_workers(momenta);
  for (const double lr : {0.5, 0.25}) {
    proto::OptimizerSettings& group = *spec.add_groups();
    group.set_name("adam");
    group.set_lr(lr);
    group.set_beta1(1 - lr);
  }
  return spec;
}

std::string ErrorOf(const proto::JobSpec& spec,
                    const std::vector<double>& rates) {
  return std::string(CheckRates(spec, rates).message());
}

TEST(Rates, OfAJobThatKnowsThemAreNone) {
  EXPECT_EQ(NumRates(proto::JobSpec()), 0);
  EXPECT_EQ(ErrorOf(proto::JobSpec(), {}), "");
}

TEST(Rates, AreOneAGroupAndThenItsMomentum) {
  EXPECT_THAT(FirstRates(TwoGroups(false)), ElementsAre(0.5, 0.25));
  EXPECT_THAT(FirstRates(TwoGroups(true)), ElementsAre(0.5, 0.25, 0.5, 0.75));
  proto::JobSpec spec;
  spec.set_rates_from_workers(true);
  spec.set_momenta_from_workers(true);
  spec.mutable_optimizer()->set_lr(0.1);
  spec.mutable_optimizer()->set_name("momentum");
  spec.mutable_optimizer()->set_momentum(0.9);
  EXPECT_THAT(FirstRates(spec), ElementsAre(0.1, 0.9));
}

TEST(Rates, OutsideOfTheirBoundsAreNamed) {
  const proto::JobSpec spec = TwoGroups(true);
  EXPECT_EQ(ErrorOf(spec, {1, 0, 0.9, 0}), "");
  EXPECT_THAT(ErrorOf(spec, {1, 2}), HasSubstr("2 learning rates and momenta "
                                               "where 4 are due"));
  EXPECT_THAT(ErrorOf(spec, {-1, 0, 0.9, 0}), HasSubstr("rate of -1"));
  EXPECT_THAT(ErrorOf(spec, {1, std::nan(""), 0.9, 0}), HasSubstr("rate of"));
  EXPECT_THAT(ErrorOf(spec, {1, INFINITY, 0.9, 0}), HasSubstr("rate of inf"));
  EXPECT_THAT(ErrorOf(spec, {1, 0, 1, 0}), HasSubstr("momentum of 1"));
  EXPECT_THAT(ErrorOf(spec, {1, 0, 0.9, -0.1}), HasSubstr("momentum of -0.1"));
}

}  // namespace
}  // namespace psring
