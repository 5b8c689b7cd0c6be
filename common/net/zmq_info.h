// What the ZeroMQ on this host is and can do.
#ifndef PSRING_COMMON_NET_ZMQ_INFO_H_
#define PSRING_COMMON_NET_ZMQ_INFO_H_

#include <string>

namespace psring {

// Of the library that runs, e.g. "4.3.4".
std::string ZmqVersion();

// Whether it can encrypt and authenticate.
bool ZmqHasCurve();

}  // namespace psring

#endif  // PSRING_COMMON_NET_ZMQ_INFO_H_
