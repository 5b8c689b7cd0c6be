// Who belongs to the job: decisions without a socket, and without a clock but
// for TimeStopped().
//
// Every event comes with the time at which it happened; the answer is the list
// of messages to send. A job goes forming -> running -> over. It forms until
// every promised process has joined; it is over when all workers have left in
// peace, or at the first failure, whose culprit every other process is told.
#ifndef PSRING_COMMON_CLUSTER_MEMBERSHIP_H_
#define PSRING_COMMON_CLUSTER_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/gathers.h"
#include "common/cluster/participants.h"
#include "protos/cluster.pb.h"

namespace psring {

// Processes of different versions do not work together.
inline constexpr uint32_t kProtocolVersion = 20;
inline constexpr absl::Duration kHeartbeatInterval = absl::Seconds(1);
inline constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);

// What the coordinator announces to all who stay when workers have done their
// part; the payload is their ranks, "3,0,7".
inline constexpr char kWorkerLeft[] = "worker left";

struct MembershipOptions {
  proto::Mode mode = proto::PARAMETER_SERVER;
  int num_servers = 1;  // 0 in ring mode
  int num_workers = 1;
  // From the first process that came: until then whoever starts them sees what
  // becomes of them, and all may take long to load what they need.
  absl::Duration join_timeout = absl::Seconds(60);
  // A process that is silent for longer is lost.
  absl::Duration heartbeat_timeout = kHeartbeatTimeout;
  uint64_t job_epoch = 0;  // names the job
  // Whether processes may come that do not know yet that the job is over. A
  // launcher ends those that it has started.
  bool late_comers = true;
  // Whether whoever has the coordinator starts the job again if it fails, at
  // the same address.
  bool may_come_again = false;
  // Every process has a Context::public_key, which nobody else has.
  bool public_keys = false;

  int promised(proto::Role role) const {
    return role == proto::PS ? num_servers : num_workers;
  }
};

class Membership {
 public:
  struct Outgoing {
    Outgoing(std::string to, proto::ControlMessage what)
        : peer(std::move(to)),
          message(
              std::make_shared<const proto::ControlMessage>(std::move(what))) {}
    Outgoing(std::string to, std::shared_ptr<const proto::ControlMessage> what)
        : peer(std::move(to)), message(std::move(what)) {}

    std::string peer;
    // One object where several get the same: lists of all processes, to all of
    // them, are in memory once.
    std::shared_ptr<const proto::ControlMessage> message;
  };

  explicit Membership(const MembershipOptions& options) : options_(options) {}

  // A message of `peer`, which is a connection's identity.
  std::vector<Outgoing> OnMessage(Time now, const std::string& peer,
                                  const proto::ControlMessage& message);
  // What `peer` has sent is no message: the job ends if it is a member.
  std::vector<Outgoing> OnMalformed(const std::string& peer);
  // Time has passed: who is missing, who is silent? Call it about every 100 ms.
  std::vector<Outgoing> OnTick(Time now);

  // A connection of a process `whose` key is another one, or that has none, has
  // been refused.
  void OnRefusedKey(const std::string& whose) { refused_key_ = whose; }

  // The coordinator's process ends before the job does. `reason`: why; empty
  // where that is not known.
  std::vector<Outgoing> OnCoordinatorGone(const std::string& reason);

  // The job as it is, or as it was when it ended.
  proto::JobView View(Time now) const;

  // Whether `peer` has joined.
  bool Knows(const std::string& peer) const { return members_.contains(peer); }

  bool over() const { return state_ == State::kOver; }
  // Once over: whether all that were promised have been told, those too who
  // came after the end.
  bool everybody_knows() const {
    return num_told_ >= options_.num_servers + options_.num_workers;
  }
  // Once over: OK, or what ended the job.
  const absl::Status& result() const { return result_; }

 private:
  enum class State { kForming, kRunning, kOver };

  std::vector<Outgoing> OnJoin(Time now, const std::string& peer,
                               const proto::Join& join);
  std::vector<Outgoing> OnGather(const Participant& member,
                                 const proto::Gather& gather);
  std::vector<Outgoing> OnAnnounce(const Participant& sender,
                                   const proto::Announce& announce);
  std::vector<Outgoing> OnLeave(Time now, Participant& member,
                                const proto::Leave& leave);
  std::vector<Outgoing> OnHeartbeat(Time now, const std::string& peer,
                                    Participant& member,
                                    const proto::Heartbeat& beat);
  // Whom a process that waits long waits for; empty: it does not.
  std::string HeldUpBy(Time now, const Participant& member) const;
  // To all who stay: the workers that have left since the last time.
  std::vector<Outgoing> TellWhoLeft();
  template <typename Receives>
  std::vector<Outgoing> ToAll(proto::ControlMessage message,
                              const Receives& receives) const;
  // `hang`: the result names a process that hangs.
  std::vector<Outgoing> End(absl::Status result, bool hang = false);
  std::vector<Outgoing> WelcomeAll();

  // Whether one that is refused should wait for the job after this one.
  bool NextJobMayCome(Time now, const proto::Join& join) const;
  // Why this process cannot take part, or nothing.
  std::optional<std::string> Objection(const proto::Join& join) const;

  int Promised(proto::Role role) const;
  int Joined(proto::Role role) const;
  // The process, with the rank that it has or, while the job forms, wants.
  std::string Named(const Participant& member) const;
  std::string Missing() const;
  std::string MissingRanks(proto::Role role) const;
  void AssignRanks(proto::Role role);

  const MembershipOptions options_;
  Time first_join_ = Time::InfiniteFuture();  // also of one that was refused
  State state_ = State::kForming;
  Time latest_;  // moment of the job that this has been told of
  bool was_complete_ = false;
  std::string last_refused_;  // who, and why; empty: nobody was
  std::string refused_key_;   // of OnRefusedKey
  absl::Status result_;
  int num_told_ = 0;              // of the end
  std::vector<int> left_untold_;  // workers' ranks
  Participants members_;
  std::string last_late_;                // collective that workers were told of
  std::vector<std::string> join_order_;  // peers
  Gathers gathers_;
  // Whom those wait for who wait long, as of the last tick: nothing where
  // nobody did, null where nobody can be blamed.
  std::optional<const Participant*> culprit_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_MEMBERSHIP_H_
