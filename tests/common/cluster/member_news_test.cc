#include "common/cluster/member_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cluster/membership.h"

namespace psring {
namespace {

using proto::ControlMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Time kNow = Time::FromNanos(1'000'000);

ControlMessage WelcomeOf(int workers) {
  ControlMessage message;
  for (int rank = 0; rank < workers; ++rank) {
    message.mutable_welcome()->add_workers()->set_rank(rank);
  }
  return message;
}

ControlMessage Seat(int rank) {
  ControlMessage message;
  message.mutable_seat()->set_rank(rank);
  return message;
}

ControlMessage Gathered(const std::string& name) {
  ControlMessage message;
  message.mutable_gathered()->set_name(name);
  message.mutable_gathered()->add_payloads("theirs");
  return message;
}

ControlMessage Left(const std::string& ranks) {
  ControlMessage message;
  message.mutable_announce()->set_name(kWorkerLeft);
  message.mutable_announce()->set_payload(ranks);
  return message;
}

// A worker of two.
class MemberNewsTest : public ::testing::Test {
 protected:
  absl::Status Take(const ControlMessage& message) {
    return news_.Take(message, kNow);
  }
  void Arrive() {
    EXPECT_TRUE(Take(WelcomeOf(2)).ok());
    EXPECT_TRUE(Take(Seat(1)).ok());
  }

  MemberNews news_{proto::WORKER, "tcp://c:1"};
};

TEST_F(MemberNewsTest, AClockStandsStillWhileItsCoordinatorIsStopped) {
  ControlMessage message;
  proto::HeartbeatAck& ack = *message.mutable_heartbeat_ack();
  ack.set_sent_ns(500'000);
  ack.set_heard_ns(5'000'750'000);
  EXPECT_TRUE(Take(message).ok());
  EXPECT_EQ(news_.clock()->ahead, absl::Seconds(5));
  ack.set_stopped_ns(4'000'000'000);
  EXPECT_TRUE(Take(message).ok());
  EXPECT_EQ(news_.clock()->ahead, absl::Seconds(1));
}

TEST_F(MemberNewsTest, TheSeatCompletesTheWelcomeOnce) {
  EXPECT_TRUE(Take(WelcomeOf(2)).ok());
  EXPECT_FALSE(news_.arrived().has_value());
  EXPECT_TRUE(Take(Seat(1)).ok());
  EXPECT_EQ(news_.arrived()->rank(), 1);
  EXPECT_TRUE(Take(Seat(0)).ok());
  EXPECT_EQ(news_.arrived()->rank(), 1);
  EXPECT_EQ(news_.arrived()->workers_size(), 2);
}

TEST_F(MemberNewsTest, ASeatThatTheJobDoesNotHaveIsAnError) {
  EXPECT_TRUE(Take(WelcomeOf(2)).ok());
  const absl::Status status = Take(Seat(2));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tcp://c:1 gives this process rank 2 of 2"));
  EXPECT_FALSE(news_.arrived().has_value());
}

// A coordinator does not fill the memory of its members.
TEST_F(MemberNewsTest, AnAnswerIsKeptWhileItIsAwaited) {
  EXPECT_TRUE(Take(Gathered("a")).ok());
  EXPECT_FALSE(news_.HasGathered("a"));
  news_.AwaitGathered("a");
  EXPECT_TRUE(Take(Gathered("a")).ok());
  EXPECT_TRUE(news_.HasGathered("a"));
  EXPECT_EQ(news_.TakeGathered("a")->payloads(0), "theirs");
  EXPECT_TRUE(Take(Gathered("a")).ok());
  EXPECT_FALSE(news_.TakeGathered("a").has_value());
}

TEST_F(MemberNewsTest, WhoLeavesIsAWorkerOfTheJob) {
  EXPECT_TRUE(Take(Left("0")).ok());
  Arrive();
  EXPECT_TRUE(Take(Left("1,2,x,-1,0")).ok());
  EXPECT_THAT(news_.workers_left(), ElementsAre(1, 0));
  EXPECT_TRUE(news_.announced().empty());
}

TEST_F(MemberNewsTest, TheEndIsTheEnd) {
  Arrive();
  ControlMessage end;
  end.mutable_job_end();
  EXPECT_TRUE(Take(end).ok());
  end.mutable_job_end()->set_error("worker 0 failed");
  EXPECT_TRUE(Take(end).ok());
  EXPECT_TRUE(news_.ended());
}

TEST_F(MemberNewsTest, AnErrorEndsItAndSaysWhetherSomebodyHangs) {
  Arrive();
  ControlMessage end;
  end.mutable_job_end()->set_error("worker 0 hangs");
  end.mutable_job_end()->set_hang(true);
  EXPECT_EQ(Take(end), absl::AbortedError("worker 0 hangs"));
  EXPECT_TRUE(news_.hang());
  EXPECT_FALSE(news_.ended());
}

}  // namespace
}  // namespace psring
