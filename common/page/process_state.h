// A process's state in a word or two.
#ifndef PSRING_COMMON_PAGE_PROCESS_STATE_H_
#define PSRING_COMMON_PAGE_PROCESS_STATE_H_

#include <string>

#include "protos/cluster.pb.h"

namespace psring {

// Not heard for longer than between heartbeats.
bool IsSilent(const proto::ProcessView& process);

// "works", "waits", "silent" or "left".
const char* StateOf(const proto::ProcessView& process);

// At what: "computing", "the exchange of a step"; may be empty.
std::string DoingOf(const proto::ProcessView& process);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_PROCESS_STATE_H_
