#include "tests/integration/control_peer.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {

std::string RefusalOf(int port, const proto::Join& join) {
  HostilePeer peer(absl::StrCat("tcp://127.0.0.1:", port));
  proto::ControlMessage message;
  *message.mutable_join() = join;
  peer.Send(message);
  const auto answer = peer.Receive(Soon());
  if (!answer.has_value() || !message.ParseFromString(answer->front())) {
    ADD_FAILURE() << "no answer";
    return "";
  }
  return message.refuse().reason();
}

// A rank that does not exist is always refused, but an address beyond loopback
// is named before it: as soon as there is a process on loopback.
void AwaitFirstRingWorker(int port) {
  proto::Join join;
  join.set_protocol_version(kProtocolVersion);
  join.set_role(proto::WORKER);
  join.set_wanted_rank(1000);
  join.set_mode(proto::RING);
  join.set_address("10.0.0.1");
  const Time deadline = Soon();
  while (absl::StrContains(RefusalOf(port, join), "--rank")) {
    ASSERT_LT(Now(), deadline);
  }
}

}  // namespace psring
