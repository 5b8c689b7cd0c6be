#include "common/cluster/coordinator.h"

#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/peer_filter.h"

namespace psring {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// How long the last word of the coordinator's own process may be on its way.
constexpr absl::Duration kLastWord = absl::Milliseconds(500);
constexpr absl::Duration kLateComers = absl::Seconds(3);

// Control messages are small; a model's tensor list is the largest.
SocketOptions ControlOptions() {
  SocketOptions options;
  options.max_frame_bytes = 16 << 20;
  options.linger = absl::Seconds(2);
  return options;
}

uint64_t RandomEpoch() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

void SendAll(Socket& socket, std::vector<Membership::Outgoing> messages) {
  for (const auto& [peer, message] : messages) {
    Frames frames;
    frames.push_back(Frame::Copy(peer));
    frames.push_back(Frame::Copy(message.SerializeAsString()));
    // A peer that has gone is found by its silence.
    socket.Send(std::move(frames)).IgnoreError();
  }
}

// Hands every message that is there to the membership.
void Serve(Socket& socket, Membership& membership, PeerFilter& peers) {
  while (true) {
    auto frames = socket.TryReceive();
    if (!frames.ok() || !frames->has_value()) return;
    const std::string peer((**frames)[0].view());
    if (!peers.Hears(peer)) continue;
    proto::ControlMessage message;
    if ((*frames)->size() != 2 ||
        !message.ParseFromString(std::string((**frames)[1].view()))) {
      peers.Drop(peer, absl::InvalidArgumentError("not a control message"));
      continue;
    }
    SendAll(socket, membership.OnMessage(Now(), peer, message));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Context& context, const HostPort& address, MembershipOptions options) {
  if (options.job_epoch == 0) options.job_epoch = RandomEpoch();
  auto host = Resolve(address.host);
  if (!host.ok()) return host.status();
  std::unique_ptr<Coordinator> coordinator(new Coordinator());
  std::promise<absl::StatusOr<std::string>> bound;
  auto endpoint = bound.get_future();
  Coordinator* self = coordinator.get();
  coordinator->thread_ = std::thread(
      [self, &context, host = *host, port = address.port, options, &bound] {
        auto socket = Socket::Bind(context, host, port, ControlOptions());
        if (!socket.ok()) {
          bound.set_value(socket.status());
          return;
        }
        bound.set_value((*socket)->endpoint());
        self->Run(**socket, options);
      });
  auto result = endpoint.get();
  if (!result.ok()) return result.status();
  coordinator->endpoint_ = *result;
  return coordinator;
}

Coordinator::~Coordinator() {
  stop_.Cancel(absl::CancelledError("the coordinator's process ends"));
  if (thread_.joinable()) thread_.join();
}

void Coordinator::Run(Socket& socket, const MembershipOptions& options) {
  Membership membership(options, Now());
  PeerFilter peers(socket.endpoint());
  Time next_tick = Now();
  while (stop_.status().ok()) {
    Wait({&socket}, stop_, next_tick).IgnoreError();
    Serve(socket, membership, peers);
    if (Now() < next_tick) continue;
    next_tick = Now() + kTick;
    SendAll(socket, membership.OnTick(Now()));
  }
  const auto serve_until = [&](const auto& done, Time end) {
    while (!done() && Now() < end) {
      Wait({&socket}, absl::Span<const int>(), end).IgnoreError();
      Serve(socket, membership, peers);
    }
  };
  serve_until([&] { return membership.over(); }, Now() + kLastWord);
  // Who starts a little later shall not look for a coordinator for a minute.
  if (membership.over()) {
    serve_until([&] { return membership.everybody_knows(); },
                Now() + kLateComers);
  }
  if (!membership.over()) SendAll(socket, membership.OnCoordinatorGone());
  serve_until([&] { return socket.delivered(); },
              Now() + (membership.result().ok() ? kLateComers : kLastWord));
}

}  // namespace psring
