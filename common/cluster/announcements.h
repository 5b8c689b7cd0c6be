// What processes announce, beside the opening and closing of models; see
// Member::Announce.
#ifndef PSRING_COMMON_CLUSTER_ANNOUNCEMENTS_H_
#define PSRING_COMMON_CLUSTER_ANNOUNCEMENTS_H_

namespace psring {

// To the workers: whoever announces it wishes that they end early; see
// stop_agreement.h. Anybody may.
inline constexpr char kStopWish[] = "stop";

// To the servers, by worker 0: whether the workers heed such wishes (kHeeded)
// or not any more (anything else). A server that has SIGTERM hands it on then,
// and serves until they have ended.
inline constexpr char kHeedsStop[] = "heeds stop";
inline constexpr char kHeeded[] = "1";

// To the workers, by any of them: how the name begins by which a worker says
// that a collective of NCCL's is late, whose sequence is the payload. Those who
// wait in it too then say so at once.
inline constexpr char kLateCollective[] = "late collective ";

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_ANNOUNCEMENTS_H_
