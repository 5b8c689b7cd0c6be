// Somebody at a job's port who does not speak as its processes do.
#ifndef PSRING_TESTS_TESTING_HOSTILE_PEER_H_
#define PSRING_TESTS_TESTING_HOSTILE_PEER_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/net/link.h"
#include "protos/cluster.pb.h"
#include "protos/wire.pb.h"

namespace psring {

// What a ZeroMQ DEALER says before its first message, in two parts
// (rfc.zeromq.org/spec/23): who it speaks as, and that it is ready.
std::string ZmtpGreeting(const std::string& mechanism = "NULL");
std::string ZmtpReady();

// One connection, a TCP socket of the test's own: it can send any bytes, and it
// learns when a message has been taken, which a ZeroMQ socket does not tell. It
// stays open until this object ends; what had not been taken then may be lost.
// What fails here is a failure of the test. One thread's own.
class HostilePeer {
 public:
  // How one of the job's own is let in where it has no key
  // (common/net/context.h): by its token, and its peer's.
  struct Login {
    std::string token;
    std::string peer_token;
  };

  // `endpoint`: "tcp://127.0.0.1:41234".
  explicit HostilePeer(const std::string& endpoint,
                       std::optional<Login> login = std::nullopt);
  ~HostilePeer();
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;

  // As they are. The other side may hang up in the middle of them.
  void SendBytes(absl::string_view bytes);

  // One message, as link.h has them; greets before the first.
  void Send(const std::vector<std::string>& message);
  // The same, of the data plane (common/net/frame.h).
  void Send(const proto::WireHeader& header, const std::string& payload) {
    Send({header.SerializeAsString(), payload});
  }
  // The same, of the control plane.
  void Send(const proto::ControlMessage& message) {
    Send({message.SerializeAsString()});
  }

  // The same to somebody who may not answer: greets, and says it
  // all the same.
  void SendBlindly(const proto::ControlMessage& message);

  // Blocks until the other side's ZeroMQ has handed all messages to the socket
  // that they are for; whoever reads it next finds them. False when it hangs up
  // or the deadline comes.
  [[nodiscard]] bool AwaitTaken(Time deadline);

  // Blocks until the other side hangs up; false when the deadline comes.
  [[nodiscard]] bool AwaitHangUp(Time deadline);

  // The next message that comes back; nothing when the other side hangs up or
  // the deadline comes.
  std::optional<std::vector<std::string>> Receive(Time deadline);

  // Ends the connection with an error, not a goodbye.
  void Reset();

 private:
  void Greet();
  void LogIn(Time deadline);
  // Takes the next frame in; false as above.
  bool ReadFrame(Time deadline);
  // Fills unread_ with `size` bytes at least; false as above.
  bool AwaitBytes(size_t size, Time deadline);
  std::string TakeBytes(size_t size);

  const std::optional<Login> login_;
  int fd_ = -1;
  bool greeted_ = false;
  Link link_;
  std::string unread_;
  std::string last_command_;
  std::vector<std::string> frames_;  // of a message that has yet to end
  std::deque<std::vector<std::string>> messages_;
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_HOSTILE_PEER_H_
