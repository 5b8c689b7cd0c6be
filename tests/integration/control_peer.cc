#include "tests/integration/control_peer.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

// A rank that does not exist is always refused, but differing settings are
// named before it: as soon as there are any to differ from.
void AwaitFirstRingWorker(int port) {
  proto::Join join;
  join.set_protocol_version(kProtocolVersion);
  join.set_role(proto::WORKER);
  join.set_wanted_rank(1000);
  join.mutable_spec()->set_mode(proto::RING);
  const absl::Time deadline = Soon();
  while (absl::StrContains(RefusalOf(port, join), "--rank")) {
    ASSERT_LT(absl::Now(), deadline);
  }
}

}  // namespace psring
