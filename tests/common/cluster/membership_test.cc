#include "common/cluster/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/announcements.h"

namespace psring {
namespace {

using proto::ControlMessage;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

// From a process that works on its own, or waits for others (`doing` empty).
ControlMessage BeatOf(int64_t step, const std::string& doing,
                      absl::Duration still) {
  ControlMessage message = BeatOf(step);
  message.mutable_heartbeat()->set_doing(doing);
  message.mutable_heartbeat()->set_still_ms(absl::ToInt64Milliseconds(still));
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
  if (out.size() != 1 || !out[0].message->has_refuse()) return "not refused";
  return out[0].message->refuse().reason();
}

std::string EndOf(const std::vector<Membership::Outgoing>& out) {
  if (out.empty() || !out[0].message->has_job_end()) return "not ended";
  return out[0].message->job_end().error();
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
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  return m;
}

TEST(Membership, WelcomesEverybodyOnceTheLastOneHasJoined) {
  Membership m(Options(1, 2));
  ControlMessage first = JoinOf(proto::WORKER);
  first.mutable_join()->set_boot(7);
  EXPECT_TRUE(m.OnMessage(kStart, "w", first).empty());
  EXPECT_TRUE(m.OnMessage(kStart, "s", JoinOf(proto::PS)).empty());
  const auto out = m.OnMessage(kStart, "v", JoinOf(proto::WORKER));
  ASSERT_EQ(out.size(), 6u);  // each gets a Welcome, and then its Seat
  std::set<std::string> welcomed;
  for (const auto& o : out) {
    if (o.message->has_seat()) {
      EXPECT_TRUE(welcomed.contains(o.peer));
      EXPECT_EQ(o.message->seat().rank(), o.peer == "v" ? 1 : 0);
      continue;
    }
    ASSERT_TRUE(o.message->has_welcome());
    EXPECT_TRUE(welcomed.insert(o.peer).second);
    EXPECT_EQ(o.message, out[0].message);  // one object for all
    EXPECT_EQ(o.message->welcome().workers_size(), 2);
    EXPECT_EQ(o.message->welcome().workers(0).boot(), 7u);
    EXPECT_EQ(o.message->welcome().servers_size(), 1);
  }
}

// Who is missing may be there, and have been started for another job.
TEST(Membership, AJobThatIsNotCompleteTellsWhomItRefused) {
  Membership m(Options(1, 1));
  ControlMessage other = JoinOf(proto::WORKER, 0);
  other.mutable_join()->set_mode(proto::RING);
  other.mutable_join()->set_host("b\n");
  other.mutable_join()->set_pid(77);
  EXPECT_NE(RefusalOf(m.OnMessage(kStart, "w", other)), "not refused");
  Tick(m, kStart, kStart + 2 * Options(1, 1).join_timeout);
  EXPECT_THAT(std::string(m.result().message()),
              AllOf(HasSubstr("missing 1 of 1 ps"),
                    HasSubstr(", pid 77) was refused: mode: ring here, ps in "
                              "the job"),
                    Not(HasSubstr("\n"))));
}

TEST(Membership, HonoursRanksThatALauncherGave) {
  Membership m(Options(0, 3));
  auto join = [](int rank) {
    ControlMessage message = JoinOf(proto::WORKER, rank);
    message.mutable_join()->set_mode(proto::RING);
    return message;
  };
  m.OnMessage(kStart, "x", join(2));
  m.OnMessage(kStart, "y", join(-1));
  for (const auto& o : m.OnMessage(kStart, "z", join(0))) {
    if (!o.message->has_seat()) continue;
    const int rank = o.message->seat().rank();
    EXPECT_EQ(rank, o.peer == "x" ? 2 : o.peer == "y" ? 1 : 0);
  }
}

TEST(Membership, ARepeatedJoinCountsOnce) {
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "w", JoinOf(proto::WORKER));
  m.OnMessage(kStart, "w", JoinOf(proto::WORKER));
  EXPECT_TRUE(m.OnMessage(kStart, "s", JoinOf(proto::PS)).empty());
}

TEST(Membership, RefusesTheOneWhoDisagreesWithBothValues) {
  Membership m(Options(1, 2));
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
            "mode: ring here, ps in the job. Start all processes of a job with "
            "the same mode; if another job has this address, choose another "
            "port");

  ControlMessage workers = JoinOf(proto::WORKER);
  workers.mutable_join()->set_num_workers(5);
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "x", workers)),
              HasSubstr("workers: 5 here, 2 in the job. Start all"));

  ControlMessage servers = JoinOf(proto::WORKER);
  servers.mutable_join()->set_num_servers(5);
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "x", servers)),
              HasSubstr("servers: 5 here, 1 in the job. Start all"));

  const auto role = static_cast<proto::Role>(9);
  EXPECT_EQ(RefusalOf(m.OnMessage(kStart, "x", JoinOf(role))),
            "role 9 is unknown");
}

// Whoever showed another's would be let in as that one.
TEST(Membership, EveryProcessHasAPublicKeyOfItsOwnWhereTheJobHasThem) {
  MembershipOptions options = Options(1, 2);
  options.public_keys = true;
  Membership m(options);
  ControlMessage join = JoinOf(proto::WORKER, 0);
  EXPECT_EQ(RefusalOf(m.OnMessage(kStart, "a", join)),
            "a public key of 0 bytes here, of 32 in the job");
  join.mutable_join()->set_public_key(std::string(32, 'a'));
  EXPECT_TRUE(m.OnMessage(kStart, "a", join).empty());
  join.mutable_join()->set_wanted_rank(1);
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", join)),
              HasSubstr("its public key is that of worker"));
  join.mutable_join()->set_public_key(std::string(32, 'b'));
  EXPECT_TRUE(m.OnMessage(kStart, "b", join).empty());
  Membership open(Options(1, 2));
  EXPECT_EQ(RefusalOf(open.OnMessage(kStart, "b", join)),
            "a public key of 32 bytes here, of 0 in the job");
}

TEST(Membership, RefusesOneTooManyAndARankTwice) {
  Membership m(Options(2, 2));
  m.OnMessage(kStart, "s", JoinOf(proto::PS, 1));  // each role has its own
  EXPECT_TRUE(m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1)).empty());
  EXPECT_TRUE(m.Knows("a"));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 1))),
              AllOf(HasSubstr("rank 1 is taken by worker"),
                    HasSubstr("psring run --first-rank)")));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 2))),
              HasSubstr("ranks 0 to 1"));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "c", JoinOf(proto::WORKER))),
              HasSubstr("takes 2 worker processes"));
}

TEST(Membership, RefusesLoopbackBesideOtherHosts) {
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  ControlMessage loopback = JoinOf(proto::WORKER);
  loopback.mutable_join()->set_address("127.0.0.1");
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "b", loopback)),
              AllOf(HasSubstr("this process has a loopback address"),
                    HasSubstr("(advertise or interface)")));
}

TEST(Membership, RefusesWhatIsNoNameAndNoAddress) {
  Membership m(Options(1, 3));
  ControlMessage join = JoinOf(proto::WORKER);
  join.mutable_join()->set_host("\x1b[2J");
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "a", join)),
              HasSubstr("the host's name, '\\x1b[2J', is not one"));
  join.mutable_join()->set_host(std::string(10000, 'h'));
  EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "a", join)),
              HasSubstr("hhh ... (9936 more bytes)', is not one"));
  for (const char* address : {"", "hostA", "10.0.0.256", "10.0.0.1:80"}) {
    join = JoinOf(proto::WORKER);
    join.mutable_join()->set_address(address);
    EXPECT_THAT(RefusalOf(m.OnMessage(kStart, "a", join)),
                HasSubstr(absl::StrCat("its address, '", address,
                                       "', is not a numeric one")));
  }
  for (const char* address : {"10.0.0.1", "2001:db8::1", "fe80::1%eth0"}) {
    join.mutable_join()->set_address(address);
    EXPECT_TRUE(m.OnMessage(kStart, address, join).empty()) << address;
    EXPECT_TRUE(m.Knows(address));
  }
}

// It is logged, and shown on the terminals of all.
TEST(Membership, TellsWhatPeopleCanRead) {
  Membership m = Running();
  ControlMessage leave;
  leave.mutable_leave()->set_error("\x1b[2J" + std::string(1 << 20, 'x'));
  const std::string error = EndOf(m.OnMessage(kStart, "a", leave));
  EXPECT_THAT(error, HasSubstr("failed: \\x1b[2Jxxx"));
  EXPECT_LT(error.size(), 70000u);
}

TEST(Membership, NamesWhoIsMissingWhenTheJobDoesNotForm) {
  Membership m(Options(1, 3));
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

// As of a program that loads for long before it calls init().
TEST(Membership, WaitsForOthersFromTheFirstOneOn) {
  Membership m(Options(1, 2));
  const absl::Duration timeout = Options(1, 2).join_timeout;
  const Time first = kStart + 5 * timeout;
  EXPECT_TRUE(Tick(m, kStart, first).empty());
  m.OnMessage(first, "a", JoinOf(proto::WORKER, 0));
  const Time last = first + timeout;
  m.OnMessage(last, "a", BeatOf(0));
  EXPECT_TRUE(m.OnTick(last).empty());
  EXPECT_THAT(EndOf(m.OnTick(last + absl::Milliseconds(100))),
              HasSubstr("1 of 2 worker processes, namely rank 1; joined: "));
}

TEST(Membership, NamesNoMissingRanksWhereSomeAreStillToBeGiven) {
  Membership m(Options(1, 3));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  const Time late = kStart + Options(1, 3).join_timeout;
  for (const char* peer : {"a", "b"}) m.OnMessage(late, peer, BeatOf(0));
  EXPECT_THAT(EndOf(m.OnTick(late + absl::Seconds(1))),
              HasSubstr("missing 1 of 1 ps processes, namely rank 0 and 1 of 3 "
                        "worker processes; joined: "));
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

// A server on hostA, which has the coordinator, and workers on `hosts`; then
// the end of the job in which those of `silent` have been silent, by a moment.
std::string EndOfSilence(const std::vector<std::string>& hosts,
                         const std::set<size_t>& silent) {
  Membership m(Options(1, static_cast<int>(hosts.size())));
  ControlMessage server = JoinOf(proto::PS);
  server.mutable_join()->set_hosts_coordinator(true);
  m.OnMessage(kStart, "s", server);
  for (size_t w = 0; w < hosts.size(); ++w) {
    ControlMessage join = JoinOf(proto::WORKER);
    join.mutable_join()->set_host(hosts[w]);
    m.OnMessage(kStart, absl::StrCat(w), join);
  }
  const Time later = kStart + absl::Seconds(4);
  m.OnMessage(later, "s", BeatOf(7));
  for (size_t w = 0; w < hosts.size(); ++w) {
    // The last heartbeats of those who fall silent lie a little apart.
    m.OnMessage(
        silent.contains(w) ? kStart + absl::Milliseconds(100 * w) : later,
        absl::StrCat(w), BeatOf(7));
  }
  return EndOf(Tick(m, kStart, kStart + absl::Seconds(6)));
}

TEST(Membership, ALossTellsWhetherItsWholeHostIsSilent) {
  const std::string lost = "lost worker 1 (host b, pid 4711) at step 7: last ";
  EXPECT_EQ(EndOfSilence({"hostA", "b", "c"}, {1}),
            lost + "heard from 5.1 s ago");
  EXPECT_EQ(EndOfSilence({"hostA", "b", "b"}, {1}),
            lost + "heard from 5.1 s ago");
  EXPECT_EQ(EndOfSilence({"hostA", "b", "c", "b"}, {1, 3}),
            lost +
                "heard from 5.1 s ago. The other process of its host is "
                "silent, too: is the host, or its network, down? If it comes "
                "back, wait longer for it (--heartbeat-timeout)");
  EXPECT_EQ(EndOfSilence({"hostA", "b", "b", "b"}, {1, 2, 3}),
            lost +
                "heard from 5.1 s ago. The other 2 processes of its host "
                "are silent, too: is the host, or its network, down? If it "
                "comes back, wait longer for it (--heartbeat-timeout)");
}

TEST(Membership, ALossOfAllOtherHostsDoubtsTheNetworkOfTheCoordinatorsHost) {
  EXPECT_EQ(EndOfSilence({"hostA", "b", "c"}, {1, 2}),
            "lost worker 1 (host b, pid 4711) at step 7: last heard from 5.1 s "
            "ago. All other hosts are silent, too: is the network of host "
            "hostA, which has the coordinator, down?");
}

// A server and two workers, which hang after 3 s.
Membership RunningWithProgressTimeout() {
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  for (const char* peer : {"a", "b"}) {
    ControlMessage join = JoinOf(proto::WORKER);
    join.mutable_join()->set_progress_timeout_ms(3000);
    m.OnMessage(kStart, peer, join);
  }
  return m;
}

// Everybody's heartbeats, of one second.
void Beat(Membership& m, Time now, const std::string& doing_of_b,
          absl::Duration still) {
  m.OnMessage(now, "s", BeatOf(7, "", still));
  m.OnMessage(now, "a", BeatOf(7, "", still));
  m.OnMessage(now, "b", BeatOf(7, doing_of_b, still));
}

TEST(Membership, AHungProcessIsNamedWhenItsTimeIsUp) {
  Membership m = RunningWithProgressTimeout();
  std::vector<Membership::Outgoing> out;
  int i = 0;
  for (; out.empty() && i < 10; ++i) {
    const Time now = kStart + absl::Seconds(i);
    Beat(m, now, "computing", absl::Seconds(i));
    out = Tick(m, now, now + absl::Milliseconds(900));
  }
  EXPECT_EQ(i, 4);
  EXPECT_EQ(
      EndOf(out),
      "worker 1 (host hostA, pid 4711) hangs: at step 7 it has been "
      "computing for 3.1 s without progress. If it may take so long, allow "
      "more (--progress-timeout, or progress_timeout_s of a script)");
  EXPECT_TRUE(out[0].message->job_end().hang());
}

TEST(Membership, WhoMakesProgressOrWaitsDoesNotHang) {
  for (const std::string doing : {"computing", ""}) {
    Membership m(Options(0, 1));
    ControlMessage join = JoinOf(proto::WORKER);
    join.mutable_join()->set_mode(proto::RING);
    join.mutable_join()->set_progress_timeout_ms(3000);
    m.OnMessage(kStart, "a", join);
    for (int i = 0; i < 20; ++i) {
      const Time now = kStart + absl::Seconds(i);
      m.OnMessage(now, "a",
                  BeatOf(i, doing, absl::Seconds(doing.empty() ? i : 1)));
      EXPECT_TRUE(Tick(m, now, now + absl::Milliseconds(900)).empty());
    }
  }
}

TEST(Membership, WhoHasLeftDoesNotHang) {
  Membership m = RunningWithProgressTimeout();
  Beat(m, kStart, "saving", absl::ZeroDuration());
  m.OnMessage(kStart, "b", LeaveOf(""));
  const Time later = kStart + absl::Seconds(9);
  m.OnMessage(later, "s", BeatOf(0));
  m.OnMessage(later, "a", BeatOf(8));
  EXPECT_EQ(EndOf(m.OnTick(later)), "not ended");
  // Nor does what it may send yet end the job.
  EXPECT_TRUE(m.OnMalformed("b").empty());
  EXPECT_FALSE(m.over());
}

// Whose patience ends first need not know who is to blame.
TEST(Membership, ATimeoutNamesTheProcessThatHangs) {
  Membership m = Running();
  for (int i = 0; i < 9; ++i) {
    Beat(m, kStart + absl::Seconds(i), "evaluating", absl::Seconds(i));
  }
  ControlMessage leave = LeaveOf("ps 0 has not answered for 8 s");
  leave.mutable_leave()->set_timed_out(true);
  const auto out = m.OnMessage(kStart + absl::Seconds(9), "a", leave);
  EXPECT_EQ(EndOf(out),
            "worker 1 (host hostA, pid 4711) hangs: at step 7 it has been "
            "evaluating for 9 s without progress, while worker 0 (host hostA, "
            "pid 4711) waited: ps 0 has not answered for 8 s");
  EXPECT_TRUE(out[0].message->job_end().hang());
}

TEST(Membership, ATimeoutBlamesNobodyWhoWorksOrWaits) {
  for (const std::string doing : {"computing", ""}) {
    Membership m = Running();
    const absl::Duration still =
        doing.empty() ? absl::Seconds(9) : absl::Milliseconds(200);
    Beat(m, kStart, doing, still);
    ControlMessage leave = LeaveOf("no answer");
    leave.mutable_leave()->set_timed_out(true);
    EXPECT_THAT(EndOf(m.OnMessage(kStart, "a", leave)),
                HasSubstr("worker 0 (host hostA, pid 4711) failed at step 7: "
                          "no answer"));
  }
}

TEST(Membership, ATimeoutBlamesNobodyWhoHasLeft) {
  Membership m = Running();
  Beat(m, kStart, "saving", absl::ZeroDuration());
  m.OnMessage(kStart, "b", LeaveOf(""));
  ControlMessage leave = LeaveOf("no answer");
  leave.mutable_leave()->set_timed_out(true);
  EXPECT_EQ(EndOf(m.OnMessage(kStart + absl::Seconds(9), "a", leave)),
            "worker 0 (host hostA, pid 4711) failed at step 7: no answer");
}

TEST(Membership, AFailureNamesTheStepThatItWasAt) {
  Membership m = Running();
  Beat(m, kStart, "computing", absl::ZeroDuration());
  ControlMessage leave = LeaveOf("disk full");
  leave.mutable_leave()->set_step(9);  // two after the last heartbeat
  EXPECT_THAT(EndOf(m.OnMessage(kStart, "a", leave)),
              HasSubstr("worker 0 (host hostA, pid 4711) failed at step 9: "
                        "disk full"));
}

TEST(Membership, AProcessThatCannotJoinEndsTheJobForAll) {
  Membership m(Options(1, 2));
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

TEST(Membership, AProcessThatGivesUpWhileTheJobFormsIsNamedByTheRankItWants) {
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1));
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  EXPECT_EQ(EndOf(m.OnMessage(kStart, "a", LeaveOf("interrupted"))),
            "worker 1 (host hostA, pid 4711) failed before the job was "
            "complete: interrupted");

  Membership silent(Options(1, 2));
  silent.OnMessage(kStart, "a", JoinOf(proto::WORKER, 1));
  Tick(silent, kStart, kStart + kHeartbeatTimeout);
  EXPECT_THAT(
      EndOf(silent.OnTick(kStart + kHeartbeatTimeout + absl::Seconds(1))),
      HasSubstr("lost worker 1 (host hostA, pid 4711): last heard"));
}

TEST(Membership, ASilentProcessIsLostAfterTheHeartbeatTimeout) {
  MembershipOptions options = Options(1, 1);
  options.heartbeat_timeout = absl::Seconds(20);
  Membership m(options);
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  const auto welcome = m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 0));
  EXPECT_EQ(welcome[0].message->welcome().heartbeat_timeout_ms(), 20000);
  EXPECT_TRUE(Tick(m, kStart, kStart + absl::Seconds(20)).empty());
  EXPECT_THAT(EndOf(m.OnTick(kStart + absl::Seconds(21))), HasSubstr("lost "));
}

TEST(Membership, AFailedProcessEndsTheJobForAll) {
  Membership m = Running();
  const auto out = m.OnMessage(kStart, "a", LeaveOf("disk full"));
  EXPECT_EQ(out.size(), 3u);
  EXPECT_EQ(EndOf(out), "worker 0 (host hostA, pid 4711) failed: disk full");
  // Only the first failure is told.
  EXPECT_TRUE(m.OnMessage(kStart, "b", LeaveOf("aborted")).empty());
}

TEST(Membership, AMemberThatSendsWhatIsNoMessageIsNamed) {
  Membership m = Running();
  EXPECT_TRUE(m.OnMalformed("stranger").empty());
  EXPECT_EQ(EndOf(m.OnMalformed("a")),
            "worker 0 (host hostA, pid 4711) has sent what is no message of "
            "psring's");
  EXPECT_TRUE(m.OnMalformed("b").empty());
}

// As an engine starts a process again that it has lost.
TEST(Membership, WhoComesToAJobThatHasLostAProcessMayWaitForTheNextJob) {
  const auto next_may_come = [](Membership& m, Time now) {
    const auto out = m.OnMessage(now, "again", JoinOf(proto::WORKER, 1));
    return out.size() == 1 && out[0].message->refuse().next_job_may_come();
  };
  Membership m(Options(1, 2));
  ControlMessage host = JoinOf(proto::PS);
  host.mutable_join()->set_hosts_coordinator(true);
  m.OnMessage(kStart, "s", host);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 0));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 1));
  // A stranger to a healthy job.
  EXPECT_FALSE(next_may_come(m, kStart + absl::Seconds(1)));
  const Time later = kStart + absl::Seconds(2);
  Tick(m, kStart + absl::Seconds(1), later);
  m.OnMessage(later, "s", BeatOf(0));
  m.OnMessage(later, "a", BeatOf(3));
  EXPECT_TRUE(next_may_come(m, later));  // "b" is silent
  m.OnMessage(later, "a", LeaveOf("lost"));
  ASSERT_TRUE(m.over());
  EXPECT_TRUE(next_may_come(m, later));
  // Another build would be refused by the next job, too.
  ControlMessage other = JoinOf(proto::WORKER, 1);
  other.mutable_join()->set_protocol_version(99);
  const auto out = m.OnMessage(later, "again", other);
  EXPECT_THAT(RefusalOf(out), HasSubstr("protocol version"));
  EXPECT_FALSE(out[0].message->refuse().next_job_may_come());
  // psring run has the coordinator, of this job alone.
  Membership launched = Running();
  launched.OnMessage(kStart, "a", LeaveOf("lost"));
  EXPECT_FALSE(next_may_come(launched, kStart));
}

// Nobody is missing from a job that some have done their part of.
TEST(Membership, WhoComesToAJobThatAWorkerHasLeftWaitsForNoOther) {
  Membership m(Options(1, 2));
  ControlMessage host = JoinOf(proto::PS);
  host.mutable_join()->set_hosts_coordinator(true);
  m.OnMessage(kStart, "s", host);
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER, 0));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER, 1));
  m.OnMessage(kStart, "b", LeaveOf(""));
  const Time later = kStart + absl::Seconds(9);
  m.OnMessage(later, "s", BeatOf(0));
  m.OnMessage(later, "a", BeatOf(3));
  const auto out = m.OnMessage(later, "again", JoinOf(proto::WORKER, 1));
  EXPECT_THAT(RefusalOf(out), HasSubstr("all of them have joined"));
  EXPECT_FALSE(out[0].message->refuse().next_job_may_come());
}

// As psring run --max-restarts does on several hosts, each when its own
// processes have ended.
TEST(Membership, WhoComesToAFailedJobThatIsStartedAgainMayWaitForThat) {
  MembershipOptions options = Options(1, 2);
  options.may_come_again = true;
  const auto next_may_come = [](Membership& m) {
    const auto out = m.OnMessage(kStart, "again", JoinOf(proto::WORKER, 1));
    return out.size() == 1 && out[0].message->refuse().next_job_may_come();
  };
  Membership forming(options);
  forming.OnMessage(kStart, "b", JoinOf(proto::WORKER, 1));
  EXPECT_FALSE(next_may_come(forming));  // its rank is taken, by one who lives
  forming.OnMessage(kStart, "b", LeaveOf("broken"));
  EXPECT_TRUE(next_may_come(forming));
  Membership ended(options);
  ended.OnMessage(kStart, "s", JoinOf(proto::PS));
  for (const auto& [peer, rank] : {std::pair("a", 0), std::pair("b", 1)}) {
    ended.OnMessage(kStart, peer, JoinOf(proto::WORKER, rank));
  }
  // Its predecessor may have died a moment ago.
  EXPECT_TRUE(next_may_come(ended));
  for (const char* peer : {"a", "b"}) {
    ended.OnMessage(kStart, peer, LeaveOf(""));
  }
  ASSERT_TRUE(ended.over());
  EXPECT_FALSE(next_may_come(ended));
}

TEST(Membership, EndsInPeaceWhenTheLastWorkerLeaves) {
  Membership m = Running();
  EXPECT_TRUE(m.OnMessage(kStart, "a", LeaveOf("")).empty());
  EXPECT_FALSE(m.over());
  // Those who stay learn of it, once.
  const auto told = m.OnTick(kStart);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(m.OnTick(kStart).empty());
  for (const auto& o : told) {
    EXPECT_NE(o.peer, "a");
    EXPECT_EQ(o.message->announce().name(), kWorkerLeft);
    EXPECT_EQ(o.message->announce().payload(), "0");
  }
  // Who has left may be silent.
  m.OnMessage(kStart + absl::Seconds(9), "s", BeatOf(0));
  m.OnMessage(kStart + absl::Seconds(9), "b", BeatOf(0));
  EXPECT_TRUE(
      Tick(m, kStart + absl::Seconds(9), kStart + absl::Seconds(10)).empty());
  EXPECT_EQ(EndOf(m.OnMessage(kStart, "b", LeaveOf(""))), "");
  EXPECT_TRUE(m.over());
  const proto::JobView view = m.View(kStart + kHeartbeatTimeout);
  for (const auto& process : view.processes()) {
    EXPECT_TRUE(process.left()) << process.DebugString();
  }
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
  EXPECT_THAT(who[0].message->gathered().missing(), ::testing::ElementsAre(0));
  EXPECT_TRUE(who[0].message->gathered().payloads().empty());
  EXPECT_TRUE(m.OnMessage(kStart, "a", GatherOf("other", "x")).empty());
  const auto out = m.OnMessage(kStart, "a", GatherOf("eval", "A"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message->gathered().payloads(),
              ::testing::ElementsAre("A", "B"));
}

// It has no rank yet.
TEST(Membership, WhatIsGatheredBeforeTheJobIsCompleteDoesNotCount) {
  Membership m(Options(1, 2));
  m.OnMessage(kStart, "a", JoinOf(proto::WORKER));
  EXPECT_TRUE(m.OnMessage(kStart, "a", GatherOf("eval", "early")).empty());
  m.OnMessage(kStart, "s", JoinOf(proto::PS));
  m.OnMessage(kStart, "b", JoinOf(proto::WORKER));
  EXPECT_TRUE(m.OnMessage(kStart, "b", GatherOf("eval", "B")).empty());
  const auto out = m.OnMessage(kStart, "a", GatherOf("eval", "A"));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_THAT(out[0].message->gathered().payloads(),
              ::testing::ElementsAre("A", "B"));
}

TEST(Membership, EndsTheJobOfAMemberThatGathersTooMuchAtOnce) {
  Membership m = Running();
  const std::string large(15 << 20, 'x');
  int open = 0;
  while (open < 20 && !m.over()) {
    m.OnMessage(kStart, "a", GatherOf(absl::StrCat("alone ", open++), large));
  }
  EXPECT_EQ(open, 5);
  EXPECT_THAT(m.result().message(),
              AllOf(HasSubstr("worker 0"), HasSubstr("gather alone")));
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
    EXPECT_EQ(o.message->announce().name(), "served");
    EXPECT_EQ(o.message->announce().payload(), "here");
  }
}

TEST(Membership, OnlyTheFirstOfARoleAnnouncesToTheOther) {
  Membership m = Running();
  ControlMessage announce;
  announce.mutable_announce()->set_to(proto::PS);
  announce.mutable_announce()->set_name("open");
  EXPECT_EQ(m.OnMessage(kStart, "a", announce).size(), 1u);
  EXPECT_TRUE(m.OnMessage(kStart, "b", announce).empty());
  announce.mutable_announce()->set_to(proto::WORKER);
  EXPECT_TRUE(m.OnMessage(kStart, "a", announce).empty());
  // Who has left is nobody's to say.
  announce.mutable_announce()->set_to(proto::PS);
  announce.mutable_announce()->set_name(kWorkerLeft);
  announce.mutable_announce()->set_payload("1");
  EXPECT_TRUE(m.OnMessage(kStart, "a", announce).empty());
}

TEST(Membership, AnyWorkerTellsTheOthersOfALateCollective) {
  Membership m = Running();
  ControlMessage announce;
  announce.mutable_announce()->set_to(proto::WORKER);
  announce.mutable_announce()->set_name("late collective model");
  EXPECT_EQ(m.OnMessage(kStart, "b", announce).size(), 2u);
  EXPECT_TRUE(m.OnMessage(kStart, "a", announce).empty());  // it is known
  announce.mutable_announce()->set_payload("8");
  EXPECT_EQ(m.OnMessage(kStart, "a", announce).size(), 2u);
  // All others would keep it.
  announce.mutable_announce()->set_payload(std::string(1000, '9'));
  EXPECT_TRUE(m.OnMessage(kStart, "a", announce).empty());
  announce.mutable_announce()->set_payload("9");
  announce.mutable_announce()->set_name("late collective " +
                                        std::string(5000, 'x'));
  EXPECT_TRUE(m.OnMessage(kStart, "a", announce).empty());
}

// From a process that waits for others at "a step".
ControlMessage WaitOf(int64_t step, absl::Duration waiting) {
  ControlMessage message = BeatOf(step);
  message.mutable_heartbeat()->set_waits_at("a step");
  message.mutable_heartbeat()->set_waiting_ms(
      absl::ToInt64Milliseconds(waiting));
  return message;
}

// What worker 0 is told whom it waits for, after `waiting`, when worker 1 is
// `doing` something.
std::string HeldUpBy(absl::Duration waiting, const std::string& doing,
                     absl::Duration silent = absl::ZeroDuration(),
                     int64_t step = 6) {
  Membership m = Running();
  const Time now = kStart + absl::Seconds(1);
  m.OnMessage(now, "b", BeatOf(step, doing, absl::Milliseconds(700)));
  m.OnMessage(now, "a", WaitOf(7, waiting));
  m.OnMessage(now + silent / 2, "s", BeatOf(0));
  m.OnMessage(now + silent / 2, "a", WaitOf(7, waiting));
  EXPECT_TRUE(Tick(m, kStart, now + silent).empty());
  const auto out = m.OnMessage(now + silent, "a", WaitOf(7, waiting));
  EXPECT_EQ(m.View(now + silent).processes(1).held_up_by(),
            out[0].message->heartbeat_ack().held_up_by());
  return out[0].message->heartbeat_ack().held_up_by();
}

TEST(Membership, WhoWaitsLongIsToldForWhom) {
  EXPECT_EQ(HeldUpBy(absl::Seconds(4), "computing"), "");
  EXPECT_EQ(HeldUpBy(absl::Seconds(6), "computing"),
            "worker 1 (host hostA, pid 4711), which is computing at step 6, "
            "for 0.7 s without progress");
  EXPECT_EQ(HeldUpBy(absl::Seconds(6), ""),
            "worker 1 (host hostA, pid 4711), which is at step 6, this one at "
            "step 7");
  EXPECT_EQ(HeldUpBy(absl::Seconds(6), "", absl::ZeroDuration(), 7),
            "others, none of whom works: all wait for each other, or for the "
            "network");
  EXPECT_EQ(HeldUpBy(absl::Seconds(6), "computing", absl::Seconds(3)),
            "worker 1 (host hostA, pid 4711), last heard from 3 s ago");
}

TEST(Membership, WhoWaitsInAGatherIsToldWhoHasNotCome) {
  Membership m = Running();
  const Time now = kStart + absl::Seconds(1);
  ControlMessage gather;
  gather.mutable_gather()->set_name("start");
  EXPECT_TRUE(m.OnMessage(now, "a", gather).empty());
  m.OnMessage(now, "b", BeatOf(0));
  const auto out = m.OnMessage(now, "a", WaitOf(0, absl::Seconds(6)));
  EXPECT_EQ(out[0].message->heartbeat_ack().held_up_by(),
            "worker 1 (host hostA, pid 4711), which has not come to 'start'; "
            "nobody works");
}

TEST(Membership, WhoWaitsForAWorkerThatHasLeftIsToldSo) {
  Membership m = Running();
  m.OnMessage(kStart, "b", LeaveOf(""));
  // However long ago.
  for (const Time now : {kStart, kStart + absl::Seconds(9)}) {
    const ControlMessage waits = WaitOf(7, absl::Seconds(6));
    m.OnMessage(now, "s", BeatOf(0));
    m.OnMessage(now, "a", waits);
    m.OnTick(now);
    EXPECT_EQ(
        m.OnMessage(now, "a", waits)[0].message->heartbeat_ack().held_up_by(),
        "worker 1 (host hostA, pid 4711), which has ended without an "
        "error while others still train");
  }
}

TEST(Membership, OfSeveralSilentOnesTheFirstIsNamed) {
  Membership m = Running();
  m.OnMessage(kStart + absl::Seconds(1), "b", BeatOf(7));
  m.OnMessage(kStart + absl::Seconds(2), "s", BeatOf(0));
  const auto out = m.OnMessage(kStart + absl::Milliseconds(5500), "a",
                               WaitOf(7, absl::Seconds(6)));
  EXPECT_EQ(out[0].message->heartbeat_ack().held_up_by(),
            "worker 1 (host hostA, pid 4711), last heard from 4.5 s ago");
}

TEST(Membership, ShowsEveryProcessInOrderWithWhatItLastSaid) {
  Membership m = Running();
  m.OnTick(kStart + absl::Milliseconds(1500));
  ControlMessage beat = BeatOf(12, "computing", absl::Seconds(2));
  proto::Figures& figures = *beat.mutable_heartbeat()->mutable_figures();
  figures.set_loss(0.5);
  figures.set_samples(640);
  figures.set_last_word("epoch 1");
  m.OnMessage(kStart + absl::Seconds(3), "b", beat);
  const proto::JobView view = m.View(kStart + absl::Seconds(4));
  EXPECT_EQ(view.state(), proto::JobView::RUNNING);
  EXPECT_EQ(view.num_workers(), 2);
  ASSERT_EQ(view.processes_size(), 3);
  EXPECT_EQ(view.processes(0).process().role(), proto::PS);
  EXPECT_EQ(view.processes(1).silent_ms(), 4000);
  const proto::ProcessView& b = view.processes(2);
  EXPECT_EQ(b.process().rank(), 1);
  EXPECT_EQ(b.process().pid(), 4711);
  EXPECT_EQ(b.step(), 12);
  EXPECT_EQ(b.doing(), "computing");
  EXPECT_EQ(b.still_ms(), 3000);
  EXPECT_EQ(b.silent_ms(), 1000);
  EXPECT_EQ(b.figures().loss(), 0.5);
  EXPECT_EQ(b.figures().samples(), 640);
  EXPECT_EQ(b.figures().last_word(), "epoch 1");

  ControlMessage leave = LeaveOf("out of memory");
  leave.mutable_leave()->mutable_figures()->set_loss(0.25);
  m.OnMessage(kStart + absl::Seconds(5), "b", leave);
  const proto::JobView over = m.View(kStart + absl::Seconds(5));
  EXPECT_EQ(over.state(), proto::JobView::OVER);
  EXPECT_THAT(over.result(), HasSubstr("out of memory"));
  EXPECT_TRUE(over.processes(2).left());
  EXPECT_EQ(over.processes(2).figures().loss(), 0.25);
}

// The others end with the job, and are heard no more.
TEST(Membership, AJobThatIsOverShowsWhoWasSilentThen) {
  Membership m = Running();
  const Time later = kStart + absl::Seconds(5);
  for (const char* peer : {"s", "a"}) m.OnMessage(later, peer, BeatOf(7));
  ASSERT_EQ(EndOf(Tick(m, later, later + absl::Seconds(1))).substr(0, 13),
            "lost worker 1");
  m.OnMessage(later + absl::Seconds(2), "a", BeatOf(7));
  const proto::JobView view = m.View(later + absl::Seconds(60));
  EXPECT_EQ(view.processes(0).silent_ms(), 100);
  EXPECT_EQ(view.processes(1).silent_ms(), 0);
  EXPECT_EQ(view.processes(2).silent_ms(), 5100);
}

TEST(Membership, WhoLeavesWithoutFiguresKeepsItsLast) {
  Membership m = Running();
  ControlMessage beat = BeatOf(12);
  beat.mutable_heartbeat()->mutable_figures()->set_loss(0.5);
  m.OnMessage(kStart, "b", beat);
  m.OnMessage(kStart, "b", LeaveOf(""));
  EXPECT_EQ(m.View(kStart).processes(2).figures().loss(), 0.5);
}

TEST(Membership, AnybodyMayWishThatWorkersStop) {
  Membership m = Running();
  ControlMessage announce;
  announce.mutable_announce()->set_to(proto::WORKER);
  announce.mutable_announce()->set_name(kStopWish);
  EXPECT_EQ(m.OnMessage(kStart, "b", announce).size(), 2u);
  announce.mutable_announce()->set_to(proto::PS);
  EXPECT_TRUE(m.OnMessage(kStart, "b", announce).empty());
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
  EXPECT_EQ(out[0].message->heartbeat_ack().sent_ns(), 42);
  EXPECT_EQ(out[0].message->heartbeat_ack().heard_ns(), 1000000000);
}

}  // namespace
}  // namespace psring
