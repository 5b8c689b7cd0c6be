#include "tests/integration/control_peer.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/membership.h"
#include "common/net/socket.h"
#include "tests/integration/hand_job.h"

namespace psring {

std::string RefusalOf(int port, const proto::Join& join) {
  Context context;
  auto socket =
      Socket::Connect(context, absl::StrCat("tcp://127.0.0.1:", port));
  EXPECT_TRUE(socket.ok()) << socket.status();
  proto::ControlMessage message;
  *message.mutable_join() = join;
  Frames frames;
  frames.push_back(Frame::Copy(message.SerializeAsString()));
  EXPECT_TRUE((*socket)->Send(std::move(frames)).ok());
  const absl::Time deadline = Patience();
  while (absl::Now() < deadline) {
    auto answer = (*socket)->TryReceive();
    if (answer.ok() && answer->has_value()) {
      EXPECT_TRUE(message.ParseFromString(std::string((**answer)[0].view())));
      return message.refuse().reason();
    }
    Wait({socket->get()}, absl::Span<const int>(), deadline).IgnoreError();
  }
  ADD_FAILURE() << "no answer";
  return "";
}

// A rank that does not exist is always refused, but differing settings are
// named before it: as soon as there are any to differ from.
void AwaitFirstRingWorker(int port) {
  proto::Join join;
  join.set_protocol_version(kProtocolVersion);
  join.set_role(proto::WORKER);
  join.set_wanted_rank(1000);
  join.mutable_spec()->set_mode(proto::RING);
  const absl::Time deadline = Patience();
  while (absl::StrContains(RefusalOf(port, join), "--rank")) {
    ASSERT_LT(absl::Now(), deadline);
  }
}

}  // namespace psring
