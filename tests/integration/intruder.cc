#include "tests/integration/intruder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cluster/membership.h"
#include "protos/cluster.pb.h"
#include "protos/wire.pb.h"

namespace psring {
namespace {

int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0)
      << "port " << port;
  return fd;
}

// ZMTP 3.0's (rfc.zeromq.org/spec/23): signature, version, mechanism, filler.
std::string Greeting() {
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16);
  greeting.resize(64, '\0');
  return greeting;
}

// The handshake's command READY, of a DEALER.
std::string Ready() {
  const std::string body("\5READY\13Socket-Type\0\0\0\6DEALER", 29 - 1);
  return std::string("\4", 1) + static_cast<char>(body.size()) + body;
}

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

Intruder::~Intruder() {
  for (int fd : fds_) close(fd);
}

std::string Intruder::Random(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(random_()));
  }
  return bytes;
}

void Intruder::SendRaw(int port, const std::string& bytes) {
  fds_.push_back(ConnectTo(port));
  // The other side may hang up in the middle of it.
  [[maybe_unused]] ssize_t sent =
      send(fds_.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void Intruder::VisitWithRawBytes(int port) {
  SendRaw(port, "");
  SendRaw(port, Greeting().substr(0, 11));
  SendRaw(port, Greeting());
  SendRaw(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  SendRaw(port, Random(4096));
  SendRaw(port, Greeting() + Random(4096));
  SendRaw(port, absl::StrCat(Greeting(), Ready(), Random(4096)));
  const std::string long_frame("\2\x40\0\0\0\0\0\0\0", 9);
  SendRaw(port, absl::StrCat(Greeting(), Ready(), long_frame, Random(4096)));
  SendRaw(port, absl::StrCat(Greeting(), Ready()));
  const linger reset = {1, 0};
  setsockopt(fds_.back(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(fds_.back());
  fds_.pop_back();
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
      {Random(17 << 20)},  // over every limit: the connection is cut
  };
  for (const auto& message : messages) {
    // Each from a peer of its own: one that is dropped is heard no more.
    auto socket =
        Socket::Connect(context_, absl::StrCat("tcp://127.0.0.1:", port));
    ASSERT_TRUE(socket.ok()) << socket.status();
    Frames frames;
    for (const std::string& frame : message) {
      frames.push_back(Frame::Copy(frame));
    }
    EXPECT_TRUE((*socket)->Send(std::move(frames)).ok());
    sockets_.push_back(*std::move(socket));
  }
}

}  // namespace psring
