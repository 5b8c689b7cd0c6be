// The announcements by which a job ends early; see stop_agreement.h.
#ifndef PSRING_COMMON_CLUSTER_STOP_WISH_H_
#define PSRING_COMMON_CLUSTER_STOP_WISH_H_

namespace psring {

// To the workers: whoever announces it wishes that they end early. Anybody may.
inline constexpr char kStopWish[] = "stop";

// To the servers, by worker 0: whether the workers heed such wishes (kHeeded)
// or not any more (anything else). A server that has SIGTERM hands it on then,
// and serves until they have ended.
inline constexpr char kHeedsStop[] = "heeds stop";
inline constexpr char kHeeded[] = "1";

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_STOP_WISH_H_
