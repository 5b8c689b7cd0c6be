#include "common/cluster/look.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/net/greeting.h"
#include "common/net/socket.h"
#include "common/printable.h"

namespace psring {
namespace {

// A coordinator that is asked by many may leave a question out.
constexpr absl::Duration kAskAgain = absl::Seconds(1);

absl::Status Ask(Socket& socket) {
  proto::ControlMessage message;
  message.mutable_look()->set_protocol_version(kProtocolVersion);
  Frames frames;
  frames.push_back(Frame::Copy(message.SerializeAsString()));
  return socket.Send(std::move(frames));
}

}  // namespace

absl::StatusOr<proto::JobView> LookAtJob(Context& context,
                                         const Cancellation& cancellation,
                                         const std::string& coordinator,
                                         absl::Duration timeout) {
  SocketOptions options;
  options.plane = SocketOptions::Plane::kControl;
  auto socket = Socket::Connect(context, coordinator, options);
  if (!socket.ok()) return socket.status();
  const Time deadline = Now() + timeout;
  Time next_ask = Now();
  while (Now() < deadline) {
    if (Now() >= next_ask) {
      next_ask = Now() + kAskAgain;
      if (absl::Status s = Ask(**socket); !s.ok()) return s;
    }
    Socket* const sockets[] = {socket->get()};
    absl::Status s = Wait(sockets, cancellation, std::min(deadline, next_ask));
    if (!s.ok()) return s;
    auto frames = (*socket)->TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) continue;
    proto::ControlMessage message;
    if ((*frames)->size() != 1 ||
        !message.ParseFromString(std::string((**frames)[0].view())) ||
        (!message.has_view() && !message.has_refuse())) {
      return absl::InternalError(
          absl::StrCat("what answers at ", coordinator,
                       " is not a psring coordinator of this version"));
    }
    if (message.has_refuse()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the coordinator at ", coordinator, ": ",
                       Printable(message.refuse().reason())));
    }
    (*socket)->Acknowledge();
    return std::move(*message.mutable_view());
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no coordinator of a job has answered at ", coordinator, " within ",
      absl::FormatDuration(timeout), ": ", DescribeListener(coordinator),
      ". Check that the job runs there, that it is of this version, and that "
      "this is its key (--key-file; --insecure if the job has none)"));
}

}  // namespace psring
