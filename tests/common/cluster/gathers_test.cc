#include "common/cluster/gathers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Process Worker(int rank) {
  proto::Process process;
  process.set_role(proto::WORKER);
  process.set_rank(rank);
  process.set_host("hostA");
  return process;
}

proto::Gather Bring(const std::string& name, const std::string& payload,
                    const std::vector<int>& among = {}) {
  proto::Gather gather;
  gather.set_name(name);
  gather.set_payload(payload);
  gather.mutable_among()->Add(among.begin(), among.end());
  return gather;
}

proto::Gather Repeat(const std::string& name,
                     const std::vector<int>& among = {}) {
  proto::Gather gather = Bring(name, "", among);
  gather.set_repeat(true);
  return gather;
}

class GathersTest : public ::testing::Test {
 protected:
  // Of worker `rank`, of three; its error ends the test.
  std::optional<Gathers::Answer> Add(int rank, const proto::Gather& gather) {
    auto answer = gathers_.Add(Worker(rank), 3, gather);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *std::move(answer) : std::nullopt;
  }

  Gathers gathers_;
};

TEST_F(GathersTest, AllGetThePayloadsByRankWhenTheLastHasCome) {
  EXPECT_FALSE(Add(2, Bring("eval", "C")).has_value());
  EXPECT_FALSE(Add(0, Bring("other", "x")).has_value());
  EXPECT_FALSE(Add(0, Bring("eval", "A")).has_value());
  const auto all = Add(1, Bring("eval", "B"));
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->gathered.name(), "eval");
  EXPECT_THAT(all->gathered.payloads(), ElementsAre("A", "B", "C"));
  EXPECT_THAT(all->ranks, ElementsAre(0, 1, 2));
}

TEST_F(GathersTest, ARoleDoesNotWaitForTheOther) {
  Add(0, Bring("eval", "A"));
  proto::Process server = Worker(0);
  server.set_role(proto::PS);
  const auto answer = gathers_.Add(server, 1, Bring("eval", "S"));
  ASSERT_TRUE(answer.ok() && answer->has_value());
  EXPECT_THAT((*answer)->gathered.payloads(), ElementsAre("S"));
}

TEST_F(GathersTest, ARepeatIsToldWhoIsMissing) {
  Add(1, Bring("eval", "B"));
  const auto who = Add(1, Repeat("eval"));
  ASSERT_TRUE(who.has_value());
  EXPECT_THAT(who->gathered.missing(), ElementsAre(0, 2));
  EXPECT_TRUE(who->gathered.payloads().empty());
  EXPECT_THAT(who->ranks, ElementsAre(1));
}

TEST_F(GathersTest, SomeRanksGatherBesideAll) {
  // Another one of the same name, which is incomplete.
  Add(2, Bring("id", "all"));
  Add(2, Bring("id", "C", {1, 2}));
  const auto who = Add(2, Repeat("id", {1, 2}));
  ASSERT_TRUE(who.has_value());
  EXPECT_THAT(who->gathered.missing(), ElementsAre(1));
  const auto both = Add(1, Bring("id", "B", {1, 2}));
  ASSERT_TRUE(both.has_value());
  EXPECT_THAT(both->ranks, ElementsAre(1, 2));
  EXPECT_THAT(both->gathered.payloads(), ElementsAre("B", "C"));
}

TEST_F(GathersTest, KnowsForWhomAProcessWaitsFirst) {
  Add(2, Bring("id", "C", {1, 2}));
  const auto missing = gathers_.FirstMissing(Worker(2), 3);
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->name, "id");
  EXPECT_EQ(missing->rank, 1);
  EXPECT_FALSE(gathers_.FirstMissing(Worker(0), 3).has_value());
  proto::Process server = Worker(2);
  server.set_role(proto::PS);
  EXPECT_FALSE(gathers_.FirstMissing(server, 3).has_value());
}

TEST_F(GathersTest, WrongRanksAreABreach) {
  for (const std::vector<int>& wrong :
       {std::vector<int>{1, 2}, {0, 3}, {-1, 0}, {1, 0}, {0, 0}}) {
    const auto answer = gathers_.Add(Worker(0), 3, Bring("x", "", wrong));
    EXPECT_TRUE(absl::IsAborted(answer.status()));
    EXPECT_THAT(std::string(answer.status().message()),
                AllOf(HasSubstr("worker 0 (host hostA"),
                      HasSubstr("gather x among wrong ranks")));
  }
}

// Its answer and the repeat have crossed on the way.
TEST_F(GathersTest, ARepeatOfACompleteGatherLeavesNothingBehind) {
  Add(0, Bring("eval", "A", {0, 1}));
  ASSERT_TRUE(Add(1, Bring("eval", "B", {0, 1})).has_value());
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(Add(0, Repeat("eval", {0, 1})).has_value());
  }
  // Another one of that name begins from nothing.
  EXPECT_FALSE(Add(1, Bring("eval", "B2", {0, 1})).has_value());
  const auto again = Add(0, Bring("eval", "A2", {0, 1}));
  ASSERT_TRUE(again.has_value());
  EXPECT_THAT(again->gathered.payloads(), ElementsAre("A2", "B2"));
}

TEST_F(GathersTest, GatheringWithoutEndIsABreach) {
  // Complete ones do not count.
  for (int i = 0; i < 200; ++i) {
    Add(0, Bring(absl::StrCat("step ", i), "A", {0, 1}));
    ASSERT_TRUE(
        Add(1, Bring(absl::StrCat("step ", i), "B", {0, 1})).has_value());
  }
  int open = 0;
  absl::Status status;
  while (open < 1000 && status.ok()) {
    status =
        gathers_.Add(Worker(0), 3, Bring(absl::StrCat("alone ", open++), ""))
            .status();
  }
  EXPECT_EQ(open, 65);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_FALSE(Add(1, Bring("another's", "")).has_value());
  proto::Process server = Worker(0);
  server.set_role(proto::PS);
  EXPECT_TRUE(gathers_.Add(server, 2, Bring("another role's", "")).ok());
}

}  // namespace
}  // namespace psring
