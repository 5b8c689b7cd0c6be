// The name of an announcement that anybody may make; see stop_agreement.h.
#ifndef PSRING_COMMON_CLUSTER_STOP_WISH_H_
#define PSRING_COMMON_CLUSTER_STOP_WISH_H_

namespace psring {

// To the workers: whoever announces it wishes that they end early.
inline constexpr char kStopWish[] = "stop";

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_STOP_WISH_H_
