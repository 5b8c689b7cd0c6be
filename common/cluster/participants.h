// The processes of a job as its coordinator knows them, and which of them holds
// the others up.
#ifndef PSRING_COMMON_CLUSTER_PARTICIPANTS_H_
#define PSRING_COMMON_CLUSTER_PARTICIPANTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "protos/cluster.pb.h"

namespace psring {

// A process that waits for others for so long is told whom it waits for.
inline constexpr absl::Duration kLongWait = absl::Seconds(5);
// Where others' patience has ended, whoever has made no progress for so long
// may be why: some heartbeats.
inline constexpr absl::Duration kSuspicious = absl::Seconds(3);

// Silent is who has sent no heartbeat for so long; they come every second.
inline constexpr absl::Duration kSilentAfter = absl::Seconds(2);

struct Participant {
  bool WaitsLong() const {
    return !left && !waits_at.empty() && waiting >= kLongWait;
  }

  proto::Process process;  // its rank is -1 while forming
  int wanted_rank = -1;
  absl::Duration progress_timeout;  // 0: none
  Time last_heard;
  int64_t step = 0;
  // What the last heartbeat said: empty where it waits for others.
  std::string doing;
  Time progress;  // the last
  std::string waits_at;
  absl::Duration waiting;
  proto::Figures figures;
  bool left = false;
};

using Participants = std::map<std::string, Participant>;  // by peer

// Who works for longest without progress, at least for `least`; may be null.
const Participant* MostStill(const Participants& participants, Time now,
                             absl::Duration least);
// "worker 1 (...) hangs: ...", of one that works.
std::string DescribeHang(const Participant& participant, Time now);

// Of the workers that have not left, the one with the fewest steps; null: there
// is none.
const Participant* FewestSteps(const Participants& participants);

// Null: there is none.
const Participant* WithRank(const Participants& participants, proto::Role role,
                            int rank);

// Who is silent, or works without progress, else the last of those that work;
// may be null.
const Participant* FindCulprit(const Participants& participants, Time now);
// What it does, or for how long nothing has been heard from it.
std::string DescribeCulprit(const Participant& culprit, Time now);

// That this process, the coordinator's, was stopped a moment ago and others may
// have given it up: a sentence to append, or empty.
std::string DescribeStop(Time now);

// What may be the cause where `lost`, which is silent, is not alone with it:
// its host, the network of the coordinator's host, or a stop of this process.
// Sentences to append, or empty.
std::string ExplainSilence(const Participants& participants,
                           const Participant& lost, Time now);

// It as its last heartbeat has told it; whom it waits for is the job's to say.
proto::ProcessView ViewOf(const Participant& participant, Time now);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_PARTICIPANTS_H_
