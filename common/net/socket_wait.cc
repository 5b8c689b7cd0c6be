#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/poll_timeout.h"
#include "common/net/socket.h"
#include "common/net/zmq_error.h"

namespace psring {
namespace {

constexpr absl::Duration kLookAgain = absl::Seconds(1);

}  // namespace

// ZeroMQ's descriptor becomes readable when there is news for ZeroMQ, which is
// not asked again while nothing was done with the socket since it had nothing.
bool Socket::HasInput() {
  if (told_) return false;
  const int events =
      Uninterrupted([this] { return socket_.get(zmq::sockopt::events); });
  const bool has_input = (events & ZMQ_POLLIN) != 0;
  told_ = !has_input;
  return has_input;
}

absl::StatusOr<bool> WaitForMessage(absl::Span<Socket* const> sockets,
                                    absl::Span<const int> fds, Time deadline) {
  absl::InlinedVector<pollfd, 8> items;
  for (int fd : fds) items.push_back({fd, POLLIN, 0});
  for (Socket* socket : sockets) items.push_back({socket->fd_, POLLIN, 0});
  for (Socket* socket : sockets) {
    const bool dealer = socket->handshakes_.has_value();
    items.push_back({dealer ? socket->handshakes_->fd() : -1, POLLIN, 0});
  }
  const auto of_fds = absl::MakeSpan(items).subspan(0, fds.size());
  const auto of_sockets =
      absl::MakeSpan(items).subspan(fds.size(), sockets.size());
  const auto of_handshakes =
      absl::MakeSpan(items).subspan(fds.size() + sockets.size());
  const auto misses_connection = [](const Socket* socket) {
    return socket->MissesConnection();
  };
  if (std::any_of(sockets.begin(), sockets.end(), misses_connection)) {
    deadline = std::min(deadline, Now() + kLookAgain);  // TryReceive may say it
  }
  try {
    while (true) {
      for (Socket* socket : sockets) {
        if (socket->HasInput()) return true;
      }
      const int ready =
          poll(items.data(), items.size(), PollTimeoutMs(deadline));
      if (ready == 0) return false;
      if (ready < 0) {
        if (errno == EINTR) continue;
        return absl::InternalError(
            absl::StrCat("cannot wait: ", std::strerror(errno)));
      }
      bool message = false, ends = false;
      for (size_t i = 0; i < sockets.size(); ++i) {
        if (of_handshakes[i].revents != 0) {
          sockets[i]->OnHandshakes();
          ends = true;  // it may be refused
        }
        if (of_sockets[i].revents == 0) continue;
        sockets[i]->told_ = false;
        message |= sockets[i]->HasInput();
      }
      for (const pollfd& fd : of_fds) ends |= fd.revents != 0;
      if (message || ends) return message;
    }
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, "cannot wait");
  }
}

absl::Status Wait(absl::Span<Socket* const> sockets, absl::Span<const int> fds,
                  Time deadline) {
  return WaitForMessage(sockets, fds, deadline).status();
}

absl::Status Wait(absl::Span<Socket* const> sockets,
                  const Cancellation& cancellation, Time deadline) {
  const int fd = cancellation.fd();
  if (absl::Status s = Wait(sockets, {fd}, deadline); !s.ok()) return s;
  return cancellation.status();
}

}  // namespace psring
