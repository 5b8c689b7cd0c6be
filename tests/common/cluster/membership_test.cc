#include "common/cluster/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace psring {
namespace {

using proto::ControlMessage;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Time kStart = Time();

ControlMessage JoinOf(proto::Role role, int wanted_rank = -1) {
  ControlMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol_version(kProtocolVersion);
  join.set_role(role);
  join.set_wanted_rank(wanted_rank);
  join.set_host("hostA");
  join.set_pid(4711);
  join.set_address("10.0.0.1");
  join.set_mode(proto::PARAMETER_SERVER);
  return message;
}

ControlMessage LeaveOf(const std::string& error) {
  ControlMessage message;
  message.mutable_leave()->set_error(error);
  return message;
}

ControlMessage BeatOf(int64_t step) {
  ControlMessage message;
  message.mutable_heartbeat()->set_step(step);
  return message;
}

ControlMessage GatherOf(const std::string& name, const std::string& payload) {
  ControlMessage message;
  message.mutable_gather()->set_name(name);
  message.mutable_gather()->set_payload(payload);
  return message;
}

ControlMessage RepeatOf(const std::string& name) {
  ControlMessage message = GatherOf(name, "");
  message.mutable_gather()->set_repeat(true);
  return message;
}

MembershipOptions Options(int servers, int workers) {
  MembershipOptions options;
  options.num_servers = servers;
  options.num_workers = workers;
  options.mode = servers > 0 ? proto::PARAMETER_SERVER : proto::RING;
  return options;
}

std::string RefusalOf(const std::vector<Membership::Outgoing>& out) {
  if (out.size() != 1 || !out[0].message.has_refuse()) return "not refused";
  return out[0].message.refuse().reason();
}

std::string EndOf(const std::vector<Membership::Outgoing>& out) {
  if (out.empty() || !out[0].message.has_job_end()) return "not ended";
  return out[0].message.job_end().error();
}

// As a process that runs: a tick every 100 ms, until the job ends.
std::vector<Membership::Outgoing> Tick(Membership& m, Time from, Time to) {
  std::vector<Membership::Outgoing> out;
  for (Time now = from; now <= to && out.empty();
       now += absl::Milliseconds(100)) {
    out = m.OnTick(now);
  }
  return out;
}

// One server and two workers, all joined at kStart.
Membership Running() {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  return m;
}

TEST(Membership, WelcomesEverybodyOnceTheLastOneHasJoined) {
  Membership m(Options(1, 2), kStart);
  EXPECT_TRUE(m.OnMessage(kStart, "w", JoinOf(proto::WORKER)).empty());
  EXPECT_TRUE(m.OnMessage(kStart, "s", JoinOf(proto::PS)).empty());
  const auto out = m.OnMessage(kStart, "v", JoinOf(proto::WORKER));
  ASSERT_EQ(out.size(), 3u);
  for (const auto& o : out) {
    ASSERT_TRUE(o.message.has_welcome());
    EXPECT_EQ(o.message.welcome().workers_size(), 2);
    EXPECT_EQ(o.message.welcome().servers_size(), 1);
    EXPECT_EQ(o.message.welcome().rank(), o.peer == "v" ? 1 : 0);
  }
}

TEST(Membership, HonoursRanksThatALauncherGave) {
  Membership m(Options(0, 3), kStart);
  auto join = [](int rank) {
    ControlMessage message = JoinOf(proto::WORKER, rank);
    message.mutable_join()->set_mode(proto::RING);
    return message;
  };
  m.OnMessage(kStart, "x", join(2));
  m.OnMessage(kStart, "y", join(-1));
  for (const auto& o : m.OnMessage(kStart, "z", join(0))) {
    const int rank = o.message.welcome().rank();
    EXPECT_EQ(rank, o.peer == "x" ? 2 : o.peer == "y" ? 1 : 0);
  }
}

TEST(Membership, ARepeatedJoinCountsOnce) {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "w", JoinOf(proto::WORKER));
  m.OnMessage(kStart, "w", JoinOf(proto::WORKER));
  EXPECT_TRUE(m.OnMessage(kStart, "s", JoinOf(proto::PS)).empty());
}

TEST(Membership, RefusesTheOneWhoDisagreesWithBothValues) {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "w", JoinOf(proto::WORKER));

  ControlMessage version = JoinOf(proto::WORKER);
  version.mutable_join()->set_protocol_version(99);
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "x", version)),
              HasSubstr(absl::StrCat("protocol version: 99 here, ",
                                     kProtocolVersion, " in the job")));

  ControlMessage mode = JoinOf(proto::WORKER);
  mode.mutable_join()->set_mode(proto::RING);
  mode.mutable_join()->set_num_workers(5);  // the mode is said first
  EXPECT_EQ(RefusalOf(m.OnMessage(kStart, "x", mode)),
            "mode: ring here, ps in the job");

  ControlMessage workers = JoinOf(proto::WORKER);
  workers.mutable_join()->set_num_workers(5);
  EXPECT_EQ(RefusalOf(m.OnMessage(kStart, "x", workers)),
            "workers: 5 here, 2 in the job");
}

TEST(Membership, RefusesOneTooManyAndARankTwice) {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 1))),
              HasSubstr("rank 1 is taken by worker"));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 2))),
              HasSubstr("ranks 0 to 1"));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "c", JoinOf(proto::WORKER))),
              HasSubstr("takes 2 worker processes"));
}

TEST(Membership, RefusesLoopbackBesideOtherHosts) {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  ControlMessage loopback = JoinOf(proto::WORKER);
  loopback.mutable_join()->set_address("127.0.0.1");
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", loopback)),
              AllOf(HasSubstr("this process has a loopback address"),
                    HasSubstr("(advertise or interface)")));
}

TEST(Membership, NamesWhoIsMissingWhenTheJobDoesNotForm) {
  Membership m(Options(1, 3), kStart);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1));
  const auto at = [](int s) { return kStart + absl::Seconds(s); };
  for (int second = 0; second < 60; second += 3) {
    EXPECT_TRUE(Tick(m, at(second), at(second + 3)).empty());
    m.OnMessage(at(second + 3), "a", BeatOf(0));
  }
  const std::string error = EndOf(Tick(m, at(60), at(61)));
  EXPECT_THAT(error,
              AllOf(HasSubstr("1 of 1 ps processes"),
                    HasSubstr("2 of 3 worker processes, namely ranks 0, 2"),
                    HasSubstr("worker 1 (host hostA, pid 4711)")));
  EXPECT_TRUE(m.over());
}

TEST(Membership, NamesTheSilentOneItsStepAndHowLong) {
  Membership m = Running();
  const Time later = kStart + absl::Seconds(4);
  m.OnMessage(later, "s", BeatOf(0));
  m.OnMessage(later, "a", BeatOf(813));
  m.OnMessage(kStart + absl::Seconds(1), "b", BeatOf(812));
  EXPECT_TRUE(Tick(m, kStart, kStart + absl::Seconds(6)).empty());
  const auto out = m.OnTick(kStart + absl::Milliseconds(6200));
  EXPECT_EQ(out.size(), 3u);
  EXPECT_EQ(EndOf(out),
            "lost worker 1 (host hostA, pid 4711) at step 812: last heard from "
            "5.2 s ago");
}

// Stopped for a minute, it wakes before what the others sent meanwhile is
// there.
TEST(Membership, ACoordinatorThatWasStoppedBlamesNobody) {
  Membership m = Running();
  EXPECT_TRUE(Tick(m, kStart, kStart + absl::Seconds(2)).empty());
  const Time back = kStart + absl::Minutes(1);
  EXPECT_TRUE(m.OnTick(back).empty());
  for (const char* peer : {"s", "a"}) {
    m.OnMessage(back + absl::Seconds(1), peer, BeatOf(9));
  }
  // Two seconds of silence before, three after: who stays silent is lost.
  EXPECT_TRUE(Tick(m, back, back + absl::Milliseconds(2900)).empty());
  EXPECT_THAT(EndOf(Tick(m, back, back + absl::Seconds(5))),
              HasSubstr("lost worker 1 "));
}

TEST(Membership, AProcessThatCannotJoinEndsTheJobForAll) {
  Membership m(Options(1, 2), kStart);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  ControlMessage decline = JoinOf(proto::WORKER, 1);
  decline.mutable_join()->set_failure("no such data");
  const auto out = m.OnMessage(kStart, "b", decline);
  EXPECT_EQ(out.size(), 2u);
  const std::string error =
      "worker 1 (host hostA, pid 4711) failed before it joined: no such data";
  EXPECT_EQ(EndOf(out), error);
  // Who comes later learns it, too.
  EXPECT_FALSE(m.everybody_knows());
  EXPECT_EQ(RefusalOf(m.OnMessage(kStart, "s", JoinOf(proto::PS))),
            "the job is over: " + error);
  EXPECT_TRUE(m.everybody_knows());
}

TEST(Membership, AFailedProcessEndsTheJobForAll) {
  Membership m = Running();
  const auto out = m.OnMessage(kStart, "a", LeaveOf("disk full"));
  EXPECT_EQ(out.size(), 3u);
  EXPECT_EQ(EndOf(out),
            "worker 0 (host hostA, pid 4711) failed at step 0: disk full");
  // Only the first failure is told.
  EXPECT_TRUE(m.OnMessage(kStart, "b", LeaveOf("aborted")).empty());
}

TEST(Membership, EndsInPeaceWhenTheLastWorkerLeaves) {
  Membership m = Running();
  const auto told = m.OnMessage(kStart, "a", LeaveOf(""));
  EXPECT_FALSE(m.over());
  // Those who stay learn of it.
  ASSERT_EQ(told.size(), 2u);
  for (const auto& o : told) {
    EXPECT_NE(o.peer, "a");
    EXPECT_EQ(o.message.announce().name(), kWorkerLeft);
    EXPECT_EQ(o.message.announce().payload(), "0");
  }
  // Who has left may be silent.
  m.OnMessage(kStart + absl::Seconds(9), "s", BeatOf(0));
  m.OnMessage(kStart + absl::Seconds(9), "b", BeatOf(0));
  EXPECT_TRUE(
      Tick(m, kStart + absl::Seconds(9), kStart + absl::Seconds(10)).empty());
  EXPECT_EQ(EndOf(m.OnMessage(kStart, "b", LeaveOf(""))), "");
  EXPECT_TRUE(m.over());
  EXPECT_TRUE(m.result().ok());
}

TEST(Membership, AServerThatLeavesEarlyIsAFailure) {
  Membership m = Running();
  EXPECT_THAT(EndOf(m.OnMessage(kStart, "s", LeaveOf(""))),
              HasSubstr("ps 0 (host hostA, pid 4711) left before"));
}

TEST(Membership, GathersPayloadsByRankOfOneRole) {
  Membership m = Running();
  EXPECT_TRUE(m.OnMessage(kStart, "b", GatherOf("eval", "B")).empty());
  const auto who = m.OnMessage(kStart, "b", RepeatOf("eval"));
  ASSERT_EQ(who.size(), 1u);
  EXPECT_EQ(who[0].peer, "b");
  EXPECT_THAT(who[0].message.gathered().missing(), ::testing::ElementsAre(0));
  EXPECT_TRUE(who[0].message.gathered().payloads().empty());
  EXPECT_TRUE(m.OnMessage(kStart, "a", GatherOf("other", "x")).empty());
  const auto out = m.OnMessage(kStart, "a", GatherOf("eval", "A"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message.gathered().payloads(),
              ::testing::ElementsAre("A", "B"));
}

// Its answer and the repeat have crossed on the way.
TEST(Membership, ARepeatOfACompleteGatherLeavesNothingBehind) {
  Membership m = Running();
  m.OnMessage(kStart, "a", GatherOf("eval", "A"));
  ASSERT_EQ(m.OnMessage(kStart, "b", GatherOf("eval", "B")).size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(m.OnMessage(kStart, "a", RepeatOf("eval")).empty());
  }
  // Another one of that name begins from nothing.
  EXPECT_TRUE(m.OnMessage(kStart, "b", GatherOf("eval", "B2")).empty());
  const auto out = m.OnMessage(kStart, "a", GatherOf("eval", "A2"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message.gathered().payloads(),
              ::testing::ElementsAre("A2", "B2"));
}

TEST(Membership, HandsOnWhatIsAnnouncedToARole) {
  Membership m = Running();
  ControlMessage announce;
  announce.mutable_announce()->set_to(proto::WORKER);
  announce.mutable_announce()->set_name("served");
  announce.mutable_announce()->set_payload("here");
  const auto out = m.OnMessage(kStart, "s", announce);
  ASSERT_EQ(out.size(), 2u);
  for (const auto& o : out) {
    EXPECT_NE(o.peer, "s");
    EXPECT_EQ(o.message.announce().name(), "served");
    EXPECT_EQ(o.message.announce().payload(), "here");
  }
}

TEST(Membership, IgnoresStrangers) {
  Membership m = Running();
  EXPECT_TRUE(m.OnMessage(kStart, "stranger", LeaveOf("boo")).empty());
  EXPECT_TRUE(m.OnMessage(kStart, "stranger", BeatOf(1)).empty());
  EXPECT_FALSE(m.over());
}

TEST(Membership, AnswersAHeartbeatWithItsTimeAndItsOwn) {
  Membership m = Running();
  ControlMessage beat = BeatOf(1);
  beat.mutable_heartbeat()->set_sent_ns(42);
  const auto out = m.OnMessage(kStart + absl::Seconds(1), "a", beat);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].message.heartbeat_ack().sent_ns(), 42);
  EXPECT_EQ(out[0].message.heartbeat_ack().heard_ns(), 1000000000);
}

}  // namespace
}  // namespace psring
