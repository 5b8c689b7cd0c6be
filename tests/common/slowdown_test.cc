#include "common/slowdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Slowdown Of(std::vector<std::string> texts, uint64_t seed = 0) {
  auto slowdown = Slowdown::Create(texts, seed);
  EXPECT_TRUE(slowdown.ok()) << slowdown.status();
  return *slowdown;
}

TEST(Slowdown, OfAWorkerIsItsAlone) {
  const Slowdown slowdown = Of({"worker:2:x3"});
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(slowdown.FactorOf(2, step), 3);
    EXPECT_EQ(slowdown.FactorOf(1, step), 1);
  }
}

TEST(Slowdown, AtRandomHitsAsOftenAsItSays) {
  const Slowdown slowdown = Of({"random:p=0.1:x5"});
  for (int worker = 0; worker < 3; ++worker) {
    int slow = 0;
    for (int64_t step = 0; step < 10000; ++step) {
      const double factor = slowdown.FactorOf(worker, step);
      EXPECT_TRUE(factor == 1 || factor == 5);
      slow += factor == 5 ? 1 : 0;
    }
    EXPECT_NEAR(slow, 1000, 150);
  }
}

TEST(Slowdown, IsAFunctionOfTheSeed) {
  const Slowdown a = Of({"random:p=0.5:x2"}, 1);
  const Slowdown again = Of({"random:p=0.5:x2"}, 1);
  const Slowdown other = Of({"random:p=0.5:x2"}, 2);
  int differ = 0;
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(a.FactorOf(0, step), again.FactorOf(0, step));
    differ += a.FactorOf(0, step) != other.FactorOf(0, step) ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

TEST(Slowdown, SeveralMultiply) {
  EXPECT_EQ(Of({"worker:0:x3", "random:p=1:x2"}).FactorOf(0, 7), 6);
  EXPECT_EQ(Of({}).FactorOf(0, 7), 1);
}

TEST(Slowdown, NamesWhatItDoesNotUnderstand) {
  for (const char* text :
       {"worker:2", "worker:-1:x3", "worker:2:3", "worker:2:x0.5",
        "random:0.1:x5", "random:p=2:x5", "host:1:x2", ""}) {
    const absl::Status status = Slowdown::Create({text}, 0).status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--slow"), HasSubstr("RANK")))
        << text;
  }
}

TEST(Slowdown, NamesAWorkerThatTheJobHasNot) {
  const Slowdown slowdown = Of({"worker:2:x3"});
  EXPECT_TRUE(slowdown.CheckWorkers(3).ok());
  EXPECT_THAT(std::string(slowdown.CheckWorkers(2).message()),
              AllOf(HasSubstr("worker 2"), HasSubstr("job of 2")));
}

}  // namespace
}  // namespace psring
