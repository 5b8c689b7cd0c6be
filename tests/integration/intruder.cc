#include "tests/integration/intruder.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cluster/membership.h"
#include "protos/cluster.pb.h"
#include "protos/wire.pb.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// A control message that a member could send, from somebody who is none.
std::string StrangersLeave() {
  proto::ControlMessage message;
  message.mutable_leave()->set_error("the stranger says that all is over");
  return message.SerializeAsString();
}

std::string StrangersJobEnd() {
  proto::ControlMessage message;
  message.mutable_job_end()->set_error("the stranger says that all is over");
  return message.SerializeAsString();
}

std::string RoleOfNobody() {
  proto::ControlMessage message;
  message.mutable_join()->set_protocol_version(kProtocolVersion);
  message.mutable_join()->set_pid(-1);
  return message.SerializeAsString();
}

std::string HeaderOfAnotherJob(proto::WireHeader::Kind kind) {
  proto::WireHeader header;
  header.set_kind(kind);
  header.set_job_epoch(1);
  header.set_dtype(proto::WireHeader::FLOAT32);
  header.set_num_elements(4);
  return header.SerializeAsString();
}

}  // namespace

HostilePeer& Intruder::PeerAt(int port) {
  return peers_.emplace_back(absl::StrCat("tcp://127.0.0.1:", port));
}

std::string Intruder::Random(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(random_()));
  }
  return bytes;
}

void Intruder::VisitWithRawBytes(int port) {
  const std::string long_frame("\2\x40\0\0\0\0\0\0\0", 9);
  for (const std::string& bytes :
       {std::string(), ZmtpGreeting().substr(0, 11), ZmtpGreeting(),
        std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), Random(4096),
        ZmtpGreeting() + Random(4096),
        absl::StrCat(ZmtpGreeting(), ZmtpReady(), Random(4096)),
        absl::StrCat(ZmtpGreeting(), ZmtpReady(), long_frame, Random(4096))}) {
    PeerAt(port).SendBytes(bytes);
  }
  HostilePeer& reset = PeerAt(port);
  reset.SendBytes(ZmtpGreeting() + ZmtpReady());
  reset.Reset();
}

void Intruder::VisitWithFrames(int port) {
  const std::vector<std::vector<std::string>> messages = {
      {""},
      {"", ""},
      {"", "", "", "", "", "", ""},
      {Random(100)},
      {Random(100), Random(1000)},
      {StrangersLeave()},
      {StrangersJobEnd()},
      {RoleOfNobody()},
      {HeaderOfAnotherJob(proto::WireHeader::PUSH), std::string(16, 'x')},
      {HeaderOfAnotherJob(proto::WireHeader::SEGMENT), std::string(16, 'x')},
      {HeaderOfAnotherJob(proto::WireHeader::SAVE), std::string(17, 'x')},
  };
  for (const auto& message : messages) {
    // Each from a peer of its own: whoever is dropped is not heard again.
    HostilePeer& peer = PeerAt(port);
    peer.Send(message);
    EXPECT_TRUE(peer.AwaitTaken(Soon())) << "port " << port;
  }
  HostilePeer& huge = PeerAt(port);
  huge.Send({Random(17 << 20)});  // over every limit: the connection is cut
  EXPECT_FALSE(huge.AwaitTaken(Soon()));
}

void Intruder::VisitUninvited(int port) {
  proto::ControlMessage message;
  message.mutable_leave();
  HostilePeer& peer = PeerAt(port);
  peer.SendBlindly(message);
  EXPECT_FALSE(peer.AwaitTaken(Soon())) << "port " << port;
}

}  // namespace psring
