#include "tests/testing/hostile_peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// ZMTP's flags of a frame.
constexpr int kMore = 1;
constexpr int kLong = 2;
constexpr int kCommand = 4;

constexpr size_t kGreetingBytes = 64;

std::string BigEndian(uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

std::string ZmtpFrame(int flags, absl::string_view body) {
  std::string bytes;
  if (body.size() < 256) {
    bytes.push_back(static_cast<char>(flags));
    bytes.push_back(static_cast<char>(body.size()));
  } else {
    bytes.push_back(static_cast<char>(flags | kLong));
    bytes += BigEndian(body.size());
  }
  bytes.append(body.data(), body.size());
  return bytes;
}

std::string Properties() {
  constexpr char kProperties[] =
      "\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\10";
  static std::atomic<uint64_t> peers = 0;
  return absl::StrCat(absl::string_view(kProperties, sizeof(kProperties) - 1),
                      absl::StrFormat("h%07d", ++peers));
}

// A byte says how long it is.
std::string Counted(const std::string& text) {
  return std::string(1, static_cast<char>(text.size())) + text;
}

}  // namespace

std::string ZmtpGreeting(const std::string& mechanism) {
  // Signature, version 3.0, mechanism, filler.
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12);
  greeting += mechanism;
  greeting.resize(kGreetingBytes, '\0');
  return greeting;
}

std::string ZmtpReady() {
  return ZmtpFrame(kCommand, absl::StrCat("\5READY", Properties()));
}

HostilePeer::HostilePeer(const std::string& endpoint,
                         std::optional<Login> login)
    : login_(std::move(login)) {
  const auto address = ParseHostPort(endpoint.substr(strlen("tcp://")));
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  if (!address.ok() ||
      inet_pton(AF_INET, address->host.c_str(), &target.sin_addr) != 1) {
    ADD_FAILURE() << endpoint;
    return;
  }
  target.sin_port = htons(static_cast<uint16_t>(address->port));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int no_delay = 1;  // a PING would wait for an answer to what it follows
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&target), sizeof(target)),
            0)
      << endpoint;
}

HostilePeer::~HostilePeer() {
  if (fd_ >= 0) close(fd_);
}

void HostilePeer::SendBytes(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;
    bytes.remove_prefix(sent);
  }
}

// A message that comes before the other side is ready ends the connection.
void HostilePeer::Greet() {
  if (greeted_) return;
  greeted_ = true;
  const Time deadline = Soon();
  if (login_.has_value()) return LogIn(deadline);
  SendBytes(ZmtpGreeting() + ZmtpReady());
  EXPECT_TRUE(AwaitBytes(kGreetingBytes, deadline)) << "no ZeroMQ is there";
  TakeBytes(kGreetingBytes);
  EXPECT_TRUE(ReadFrame(deadline) &&
              absl::StartsWith(last_command_, "\5READY"));
}

// As RFC 24, PLAIN, has it.
void HostilePeer::LogIn(Time deadline) {
  SendBytes(ZmtpGreeting("PLAIN"));
  SendBytes(ZmtpFrame(kCommand, absl::StrCat("\5HELLO", Counted(login_->token),
                                             Counted(login_->peer_token))));
  EXPECT_TRUE(AwaitBytes(kGreetingBytes, deadline)) << "no ZeroMQ is there";
  TakeBytes(kGreetingBytes);
  EXPECT_TRUE(ReadFrame(deadline) && last_command_ == "\7WELCOME")
      << "the token is not taken";
  SendBytes(ZmtpFrame(kCommand, absl::StrCat("\10INITIATE", Properties())));
  EXPECT_TRUE(ReadFrame(deadline) &&
              absl::StartsWith(last_command_, "\5READY"));
}

void HostilePeer::Send(const std::vector<std::string>& message) {
  Greet();
  const auto header = Encode(link_.Next());
  std::vector<std::string> frames = {{header.data(), header.size()}};
  frames.insert(frames.end(), message.begin(), message.end());
  for (size_t i = 0; i < frames.size(); ++i) {
    SendBytes(ZmtpFrame(i + 1 < frames.size() ? kMore : 0, frames[i]));
  }
}

void HostilePeer::SendBlindly(const proto::ControlMessage& message) {
  greeted_ = true;
  SendBytes(ZmtpGreeting() + ZmtpReady());
  const Time deadline = Soon();
  if (AwaitBytes(kGreetingBytes, deadline)) {
    TakeBytes(kGreetingBytes);
    [[maybe_unused]] const bool ready = ReadFrame(deadline);
  }
  Send(message);
}

// ZeroMQ answers a PING as soon as it has decoded what came before it, but may
// hand that over only afterwards: before it decodes a second PING.
bool HostilePeer::AwaitTaken(Time deadline) {
  Greet();
  for (const char* number : {"1", "2"}) {
    const std::string time_to_live(2, '\0');
    SendBytes(
        ZmtpFrame(kCommand, absl::StrCat("\4PING", time_to_live, number)));
    while (last_command_ != absl::StrCat("\4PONG", number)) {
      if (!ReadFrame(deadline)) return false;
    }
  }
  return true;
}

bool HostilePeer::AwaitHangUp(Time deadline) {
  while (AwaitBytes(unread_.size() + 1, deadline)) {
  }
  return Now() < deadline;
}

std::optional<std::vector<std::string>> HostilePeer::Receive(Time deadline) {
  while (true) {
    while (messages_.empty()) {
      if (!ReadFrame(deadline)) return std::nullopt;
    }
    std::vector<std::string> message = std::move(messages_.front());
    messages_.pop_front();
    const auto header = ParseLinkHeader(message.front());
    EXPECT_TRUE(header.has_value());
    if (header->kind != LinkHeader::Kind::kMessage) continue;
    message.erase(message.begin());
    return message;
  }
}

bool HostilePeer::ReadFrame(Time deadline) {
  if (!AwaitBytes(1, deadline)) return false;
  const int flags = unread_[0];
  const size_t size_bytes = flags & kLong ? 8 : 1;
  if (!AwaitBytes(1 + size_bytes, deadline)) return false;
  size_t size = 0;
  for (const unsigned char byte : TakeBytes(1 + size_bytes).substr(1)) {
    size = size << 8 | byte;
  }
  if (!AwaitBytes(size, deadline)) return false;
  if (flags & kCommand) {
    last_command_ = TakeBytes(size);
    return true;
  }
  frames_.push_back(TakeBytes(size));
  if (!(flags & kMore)) messages_.push_back(std::exchange(frames_, {}));
  return true;
}

bool HostilePeer::AwaitBytes(size_t size, Time deadline) {
  while (unread_.size() < size) {
    const absl::Duration left =
        std::max(deadline - Now(), absl::ZeroDuration());
    pollfd item = {fd_, POLLIN, 0};
    if (poll(&item, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) < 1) {
      return false;
    }
    char bytes[65536];
    const ssize_t received = recv(fd_, bytes, sizeof(bytes), 0);
    if (received <= 0) return false;
    unread_.append(bytes, received);
  }
  return true;
}

std::string HostilePeer::TakeBytes(size_t size) {
  std::string bytes = unread_.substr(0, size);
  unread_.erase(0, size);
  return bytes;
}

void HostilePeer::Reset() {
  const linger reset = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(fd_);
  fd_ = -1;
}

}  // namespace psring
