#include "common/cluster/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/membership.h"
#include "common/cluster/process_names.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One process of a job: what main would hold.
struct Peer {
  Context context;
  Cancellation cancellation;
  absl::StatusOr<std::unique_ptr<Member>> member;
  absl::Duration heartbeat_timeout =
      kHeartbeatTimeout;  // the coordinator, for it

  void Join(const Coordinator& coordinator, proto::Role role,
            proto::Mode mode = proto::PARAMETER_SERVER,
            bool hosts_coordinator = false,
            absl::Duration join_timeout = absl::Seconds(60)) {
    MemberOptions options;
    options.coordinator = coordinator.endpoint();
    options.join.set_role(role);
    options.join.set_address("127.0.0.1");
    options.join.set_wanted_rank(-1);
    options.join.set_host("h");
    options.join.set_mode(mode);
    options.join.set_hosts_coordinator(hosts_coordinator);
    options.join_timeout = join_timeout;
    options.heartbeat_timeout = heartbeat_timeout;
    member = Member::Join(context, cancellation, options);
  }
};

// What the coordinator has shown last.
struct Watched {
  Mutex mutex;
  proto::JobView view ABSL_GUARDED_BY(mutex);
  absl::Duration halt ABSL_GUARDED_BY(mutex);  // of its thread, once
};

struct Job {
  // After which a member is lost for the coordinator, and it for members.
  explicit Job(
      absl::Duration member_heartbeat_timeout = kHeartbeatTimeout,
      absl::Duration coordinator_heartbeat_timeout = kHeartbeatTimeout) {
    MembershipOptions options;
    options.num_workers = 2;
    options.heartbeat_timeout = member_heartbeat_timeout;
    options.join_timeout = absl::Seconds(60);
    for (Peer* p : {&server, &a, &b})
      p->heartbeat_timeout = coordinator_heartbeat_timeout;
    auto started =
        Coordinator::Start(context, {"127.0.0.1", 0}, options,
                           [this](Time, const proto::JobView& view) {
                             MutexLock lock(&watched.mutex);
                             absl::SleepFor(std::exchange(watched.halt, {}));
                             watched.view = view;
                           });
    EXPECT_TRUE(started.ok()) << started.status();
    coordinator = *std::move(started);
    std::vector<std::thread> threads;
    threads.emplace_back([this] { server.Join(*coordinator, proto::PS); });
    for (Peer* w : {&a, &b}) {
      threads.emplace_back([this, w] { w->Join(*coordinator, proto::WORKER); });
    }
    for (std::thread& t : threads) t.join();
    for (Peer* p : {&server, &a, &b}) {
      EXPECT_TRUE(p->member.ok()) << p->member.status();
    }
  }

  void WorkersLeave() {
    std::thread other([this] {
      EXPECT_TRUE((*a.member)->Leave(absl::OkStatus(), Soon()).ok());
    });
    EXPECT_TRUE((*b.member)->Leave(absl::OkStatus(), Soon()).ok());
    other.join();
  }

  Watched watched;
  Context context;
  std::unique_ptr<Coordinator> coordinator;
  Peer server, a, b;
};

TEST(Member, EverybodyLeavesInPeace) {
  Job job;
  job.WorkersLeave();
  const auto end = (*job.server.member)->NextAnnouncement();
  EXPECT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->has_value());
  EXPECT_TRUE(job.server.cancellation.status().ok());
}

TEST(Member, GatherGivesEverybodyAllPayloads) {
  Job job;
  auto gather = [](Peer& peer) {
    const std::string mine = absl::StrCat("of ", (*peer.member)->job().rank());
    auto all = (*peer.member)->Gather("eval 1", mine, Soon());
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_THAT(*all, ::testing::ElementsAre("of 0", "of 1"));
  };
  std::thread other([&] { gather(job.a); });
  gather(job.b);
  other.join();
}

TEST(Member, AGatherThatIsLateNamesWhoIsMissing) {
  Job job;
  const int missing = (*job.b.member)->job().rank();
  const auto all =
      (*job.a.member)->Gather("eval 1", "", Now() + absl::Milliseconds(1));
  EXPECT_EQ(all.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(all.status().message()),
              AllOf(HasSubstr(absl::StrCat("worker ", missing, " (host h")),
                    HasSubstr("has not reached 'eval 1' in time")));
}

TEST(Member, AFailureReachesEverybodyWithItsCulprit) {
  Job job;
  EXPECT_FALSE(
      (*job.a.member)->Leave(absl::InternalError("disk full"), Soon()).ok());
  const absl::Status end = (*job.server.member)->NextAnnouncement().status();
  EXPECT_THAT(std::string(end.message()),
              AllOf(HasSubstr("worker"), HasSubstr("disk full")));
  EXPECT_FALSE((*job.b.member)->Gather("never", "", Soon()).ok());
  EXPECT_FALSE(job.b.cancellation.status().ok());
}

// A file's name need not be UTF-8, which protobuf demands of a text.
TEST(Member, AFailureMayTellOfAnyBytes) {
  Job job;
  EXPECT_FALSE(
      (*job.a.member)
          ->Leave(absl::InternalError("cannot read /data/\xff: gone"), Soon())
          .ok());
  const absl::Status end = (*job.server.member)->NextAnnouncement().status();
  EXPECT_THAT(std::string(end.message()),
              HasSubstr("cannot read /data/\\xff: gone"));
}

TEST(Member, ACoordinatorThatGoesIsNamedByItsSilence) {
  Job job;
  job.coordinator.reset();  // says goodbye
  const absl::Status end = (*job.server.member)->NextAnnouncement().status();
  EXPECT_THAT(std::string(end.message()), HasSubstr("coordinator"));
}

TEST(Member, NobodyAtTheCoordinatorsAddressIsAnErrorThatNamesIt) {
  Peer peer;
  MemberOptions options;
  options.coordinator = "tcp://127.0.0.1:1";
  options.join_timeout = absl::Milliseconds(200);
  auto member = Member::Join(peer.context, peer.cancellation, options);
  EXPECT_EQ(member.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(member.status().message()),
      AllOf(HasSubstr("tcp://127.0.0.1:1"), HasSubstr("--host-coordinator")));
}

// Whatever it is that answers there.
TEST(Member, ASeatThatTheJobDoesNotHaveIsAnError) {
  Context context;
  auto socket = Socket::Bind(context, "127.0.0.1", 0,
                             {.plane = SocketOptions::Plane::kControl});
  ASSERT_TRUE(socket.ok()) << socket.status();
  MemberOptions options;
  options.coordinator = (*socket)->endpoint();
  options.join.set_role(proto::WORKER);
  Peer peer;
  std::thread joins([&] {
    peer.member = Member::Join(peer.context, peer.cancellation, options);
  });
  absl::StatusOr<std::optional<Frames>> asked;
  do {
    ASSERT_TRUE(Wait({socket->get()}, std::vector<int>{}, Soon()).ok());
    asked = (*socket)->TryReceive();
  } while (asked.ok() && !asked->has_value());
  ASSERT_TRUE(asked.ok()) << asked.status();
  proto::ControlMessage seat;
  seat.mutable_seat()->set_rank(7);
  Frames answer;
  answer.push_back(Frame::Copy((**asked)[0].view()));
  answer.push_back(Frame::Copy(seat.SerializeAsString()));
  ASSERT_TRUE((*socket)->Send(std::move(answer)).ok());
  joins.join();
  EXPECT_THAT(std::string(peer.member.status().message()),
              HasSubstr("gives this process rank 7 of 0"));
}

// A script's second job may have the address of its first, whose coordinator is
// still there when a quick process comes.
TEST(Member, WhoComesEarlyToTheNextJobWaitsForItsCoordinator) {
  MembershipOptions options;
  options.mode = proto::RING;
  options.num_servers = 0;
  options.num_workers = 1;
  options.join_timeout = absl::Seconds(60);
  auto context = std::make_unique<Context>();
  auto first = Coordinator::Start(*context, {"127.0.0.1", 0}, options, nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  Peer before;
  before.Join(**first, proto::WORKER, proto::RING, /*hosts_coordinator=*/true);
  ASSERT_TRUE(before.member.ok()) << before.member.status();
  ASSERT_TRUE((*before.member)->Leave(absl::OkStatus(), Soon()).ok());

  CapturedLog log;
  Peer early;
  const auto at = ParseEndpoint((*first)->endpoint());
  std::atomic<bool> early_waits = true;
  std::thread joins([&] {
    early.Join(**first, proto::WORKER, proto::RING);
    early_waits = false;
  });
  while (log.Count("of an earlier job (the job is over: it has finished)") ==
             0 &&
         early_waits) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  (*first).reset();
  context = std::make_unique<Context>();  // the old one's port is free
  auto next = Coordinator::Start(*context, *at, options, nullptr);
  ASSERT_TRUE(next.ok()) << next.status();
  joins.join();
  ASSERT_TRUE(early.member.ok()) << early.member.status();
  EXPECT_TRUE((*early.member)->Leave(absl::OkStatus(), Soon()).ok());
}

// Who has come too late, and waits for a start that does not follow.
TEST(Member, WhereNoNextJobComesTheErrorSaysHowTheEarlierOneEnded) {
  MembershipOptions options;
  options.mode = proto::RING;
  options.num_servers = 0;
  options.num_workers = 2;
  options.join_timeout = absl::ZeroDuration();
  options.may_come_again = true;
  Context context;
  auto earlier =
      Coordinator::Start(context, {"127.0.0.1", 0}, options, nullptr);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  Peer in_time, late;
  in_time.Join(**earlier, proto::WORKER, proto::RING);
  EXPECT_FALSE(in_time.member.ok());
  late.Join(**earlier, proto::WORKER, proto::RING, /*hosts_coordinator=*/false,
            absl::Seconds(5));
  EXPECT_THAT(
      std::string(late.member.status().message()),
      AllOf(HasSubstr("within 5s, except one of an earlier job (the job is "
                      "over: "),
            HasSubstr("missing 1 of 2 worker processes")));
}

// psring run's coordinator has one job.
TEST(Member, WhoComesToAJobThatHasFinishedIsToldSoWhereNoOtherCanCome) {
  Job job;
  job.WorkersLeave();
  Peer late;
  late.Join(*job.coordinator, proto::WORKER);
  EXPECT_THAT(std::string(late.member.status().message()),
              HasSubstr("the job is over: it has finished"));
}

TEST(Member, WhoeverLooksAtTheSameMomentIsAnswered) {
  Job job;
  proto::ControlMessage look;
  look.mutable_look()->set_protocol_version(kProtocolVersion);
  HostilePeer first(job.coordinator->endpoint());
  HostilePeer second(job.coordinator->endpoint());
  first.Send(look);
  second.Send(look);
  EXPECT_TRUE(first.Receive(Soon()).has_value());
  EXPECT_TRUE(second.Receive(Soon()).has_value());
  // But not as often as one likes.
  for (int i = 0; i < 200; ++i) first.Send(look);
  ASSERT_TRUE(first.AwaitTaken(Soon()));
  ASSERT_TRUE(first.Receive(Soon()).has_value());
  int answers = 1;
  while (first.Receive(Now() + absl::Milliseconds(200))) ++answers;
  EXPECT_LT(answers, 100);
}

// Else a stranger's words would each bring one of the coordinator's.
TEST(Member, WhoIsRefusedIsToldOnce) {
  Job job;
  HostilePeer refused(job.coordinator->endpoint());
  proto::ControlMessage join, look;
  join.mutable_join()->set_protocol_version(0);
  look.mutable_look()->set_protocol_version(kProtocolVersion);
  for (int i = 0; i < 3; ++i) refused.Send(join);
  ASSERT_TRUE(refused.AwaitTaken(Soon()));
  EXPECT_TRUE(refused.Receive(Soon()).has_value());
  HostilePeer other(job.coordinator->endpoint());
  other.Send(look);
  EXPECT_TRUE(other.Receive(Soon()).has_value());  // all before it was heard
  EXPECT_FALSE(refused.Receive(Now() + absl::Milliseconds(50)).has_value());
}

TEST(Member, ACancelledProcessStopsWaitingToJoin) {
  Context context;
  MembershipOptions options;
  options.num_workers = 2;
  absl::Notification both_wait;
  auto coordinator = Coordinator::Start(
      context, {"127.0.0.1", 0}, options,
      [&](Time, const proto::JobView& view) {
        if (view.processes_size() == 2 && !both_wait.HasBeenNotified()) {
          both_wait.Notify();
        }
      });
  Peer peer, other;
  std::thread interrupt([&] {
    both_wait.WaitForNotificationWithTimeout(Soon() - Now());
    peer.cancellation.Cancel(absl::CancelledError("interrupted"));
  });
  std::thread waits([&] { other.Join(**coordinator, proto::WORKER); });
  peer.Join(**coordinator, proto::WORKER);
  EXPECT_EQ(peer.member.status().message(), "interrupted");
  interrupt.join();
  // Who waits with it learns it before the silence tells.
  peer.member = absl::UnknownError("gone");
  waits.join();
  EXPECT_THAT(std::string(other.member.status().message()),
              HasSubstr("failed before the job was complete: interrupted"));
}

TEST(Member, LearnsTheCoordinatorsClock) {
  Job job;
  const Time deadline = Soon();
  std::optional<ClockOffset> clock;
  while (!(clock = (*job.a.member)->coordinator_clock()).has_value()) {
    ASSERT_LT(Now(), deadline);
    std::this_thread::yield();
  }
  // Here both are one clock.
  EXPECT_LE(absl::AbsDuration(clock->ahead), clock->round_trip / 2);
}

// Waits until the coordinator of `job` is shown what `done` asks for.
void AwaitView(Watched& watched,
               const std::function<bool(const proto::JobView&)>& done) {
  MutexLock lock(&watched.mutex);
  const auto holds = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(watched.mutex) {
    return done(watched.view);
  };
  EXPECT_TRUE(watched.mutex.AwaitUntil(holds, Soon()))
      << watched.view.DebugString();
}

// As the coordinator was told, whatever the member was.
TEST(Member, WaitsForTheCoordinatorAsLongAsThatWaitsForMembers) {
  Job job(/*member_heartbeat_timeout=*/absl::Seconds(20),
          /*coordinator_heartbeat_timeout=*/absl::Seconds(5));
  EXPECT_EQ((*job.a.member)->heartbeat_timeout(), absl::Seconds(20));
  job.WorkersLeave();
}

// It had no time to read what members say.
TEST(Member, IsNotLostWhereTheCoordinatorHasHaltedForLonger) {
  Job job(/*member_heartbeat_timeout=*/absl::Seconds(4),
          /*coordinator_heartbeat_timeout=*/absl::Seconds(60));
  {
    MutexLock lock(&job.watched.mutex);
    job.watched.halt = absl::Seconds(6);
    job.watched.view.Clear();
  }
  AwaitView(job.watched, [](const proto::JobView& view) {
    return view.processes_size() == 3;
  });
  {
    MutexLock lock(&job.watched.mutex);
    job.watched.view.Clear();
  }
  AwaitView(job.watched, [](const proto::JobView& view) {
    return view.processes_size() == 3;
  });
  job.WorkersLeave();
}

TEST(Member, HeartbeatsCarryItsFiguresToWhoeverWatches) {
  Job job;
  (*job.b.member)->ReportStep(3);
  (*job.b.member)->figures().Update([](proto::Figures& all) {
    all.set_loss(0.25);
    all.set_last_word("saved /data/\xff");  // not UTF-8, as a file's name
  });
  (*job.b.member)->figures().AddStep(2, Now(), Now());
  const int rank = (*job.b.member)->job().rank();
  AwaitView(job.watched, [&](const proto::JobView& view) {
    if (view.processes_size() < 3) return false;
    const proto::ProcessView& b = view.processes(1 + rank);
    return b.step() == 3 && b.figures().loss() == 0.25 &&
           b.figures().last_word() == "saved /data/\\xff" &&
           b.figures().resident_bytes() > 1 << 20;
  });
}

TEST(Member, AWaitOfSecondsIsSaidOnceWithTheNameOfWhoHoldsItUp) {
  const CapturedLog log;
  Job job;
  (*job.b.member)->activities().own().Work("computing");
  const Time begin = Now();
  {
    const WaitingForOthers waiting((*job.a.member)->activities().own(),
                                   "a step");
    AwaitView(job.watched, [&](const proto::JobView& view) {
      return view.processes_size() == 3 &&
             (view.processes(1).waiting_ms() > 7000 ||
              view.processes(2).waiting_ms() > 7000);
    });
  }
  const int rank = (*job.b.member)->job().rank();
  const proto::Process& b = (*job.a.member)->job().workers(rank);
  const int told = log.Count(
      absl::StrCat("at a step for ", Describe(b), ", which is computing"));
  EXPECT_GE(told, 1);
  int most = 1;  // after 5 s; again, on a busy machine, at each doubling
  for (auto wait = absl::Seconds(10); wait <= Now() - begin; wait *= 2) ++most;
  EXPECT_LE(told, most);
  EXPECT_EQ(log.Count("has waited"), told);
}

}  // namespace
}  // namespace psring
