#include "common/cluster/coordinator.h"

#include <algorithm>
#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/net/peer_filter.h"

namespace psring {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// How long the last word of the coordinator's own process may be on its way.
constexpr absl::Duration kLastWord = absl::Milliseconds(500);
constexpr absl::Duration kLateComers = absl::Seconds(3);
// How long this process, once it was stopped, takes to meet the connections
// that came meanwhile.
constexpr absl::Duration kAfterStop = absl::Seconds(5);
constexpr absl::Duration kWatchInterval = absl::Seconds(1);
// Between answers to whoever wants to look at the job, on average; and how many
// may come at once. Who asks each second at the same moment as another would
// otherwise get none.
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);
constexpr int kLooksAtOnce = 20;

// Control messages are small; a model's tensor list is the largest.
SocketOptions ControlOptions() {
  SocketOptions options;
  options.plane = SocketOptions::Plane::kControl;
  options.max_frame_bytes = 16 << 20;
  options.linger = absl::Seconds(2);
  return options;
}

uint64_t RandomEpoch() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

void SendAll(Socket& socket, std::vector<Membership::Outgoing> messages) {
  const proto::ControlMessage* last = nullptr;
  Frame bytes;  // of `last`
  for (const auto& [peer, message] : messages) {
    if (message.get() != last) {
      bytes = Frame::Copy(message->SerializeAsString());
      last = message.get();
    }
    Frames frames;
    frames.push_back(Frame::Copy(peer));
    frames.push_back(bytes.Share());
    // A peer that has gone is found by its silence.
    socket.Send(std::move(frames)).IgnoreError();
  }
}

// Says whose connections were refused, for each reason at its 1st, 10th, 100th
// one ... A process tries again and again.
class RefusalLog {
 public:
  // Returns the reason of those that are new, as Membership::OnRefusedKey takes
  // it; null: there are none.
  const char* Tell(Socket& socket) {
    const Time now = Now();
    const absl::Duration stopped = TimeStopped();
    Socket::Refusals news = socket.TakeRefusals();
    // Connections of the job's own processes, which have given them up before
    // they could show their key.
    if (stopped != std::exchange(stopped_, stopped)) {
      quiet_until_ = now + kAfterStop;
    }
    if (now < quiet_until_) news.no_key = news.needs_key = 0;
    const char* whose = nullptr;
    Tell(socket, news.needs_key,
         "that has a key, or is none of psring's: this job has no key",
         &needs_key_, &whose);
    // Also one with another key, which is refused, then looks why.
    Tell(socket, news.no_key,
         "that shows no key, or hung up before it could: this job has one",
         &no_key_, &whose);
    Tell(socket, news.other_key, "whose key is not this job's", &other_key_,
         &whose);
    return whose;
  }

 private:
  struct Count {
    int64_t all = 0;
    int64_t next = 1;
  };

  static void Tell(const Socket& socket, int64_t news, const char* whose,
                   Count* count, const char** last) {
    if (news > 0) *last = whose;
    count->all += news;
    if (count->all < count->next) return;
    while (count->next <= count->all) count->next *= 10;
    LogWarning("$0 refuses a process $1 (connections so far: $2)",
               socket.endpoint(), whose, count->all);
  }

  Count other_key_, no_key_, needs_key_;
  absl::Duration stopped_ = TimeStopped();
  Time quiet_until_ = Time::InfinitePast();
};

// Answers those who look at the job without being part of it. Views may be
// large, so too many questions get no answer.
class Looks {
 public:
  void Answer(Socket& socket, const Membership& membership,
              const std::string& peer, const proto::Look& look) {
    const Time now = Now();
    if (paid_until_ > now + kLooksAtOnce * kLookInterval) return;
    paid_until_ = std::max(paid_until_, now) + kLookInterval;
    proto::ControlMessage answer;
    if (look.protocol_version() == kProtocolVersion) {
      *answer.mutable_view() = membership.View(now);
    } else {
      answer.mutable_refuse()->set_reason(absl::StrCat(
          "protocol version: ", look.protocol_version(), " here, ",
          kProtocolVersion, " in the job. Run the same build of psring"));
    }
    SendAll(socket, {{peer, std::move(answer)}});
  }

 private:
  // When all answers so far have had their interval.
  Time paid_until_ = Time::InfinitePast();
};

// Hands messages that are there to the membership: for as long as a tick, so
// that nobody keeps it from the clock, and what has come during a halt of this
// thread is heard before OnTick judges who is silent.
void Serve(Socket& socket, Membership& membership, PeerFilter& peers,
           Looks& looks, std::atomic<bool>& anyone_joined) {
  const auto drop = [&](const std::string& peer, const absl::Status& why) {
    peers.Drop(peer, why);
    socket.Ignore(peer);
  };
  for (const Time end = Now() + kTick; Now() < end;) {
    auto frames = socket.TryReceive();
    if (!frames.ok() || !frames->has_value()) return;
    const std::string peer((**frames)[0].view());
    if (!peers.Hears(peer)) continue;
    proto::ControlMessage message;
    if ((*frames)->size() != 2 ||
        !message.ParseFromString(std::string((**frames)[1].view()))) {
      drop(peer, absl::InvalidArgumentError("not a control message"));
      SendAll(socket, membership.OnMalformed(peer));
      continue;
    }
    if (message.has_look()) {
      looks.Answer(socket, membership, peer, message.look());
      continue;
    }
    auto answers = membership.OnMessage(Now(), peer, message);
    if (message.has_join()) {
      if (membership.Knows(peer)) {
        socket.Vouch(peer);
        anyone_joined = true;
      } else if (!answers.empty() && !membership.over() &&
                 !answers[0].message->refuse().next_job_may_come()) {
        // It is told so once. Of a job that is over, all who come learn why.
        drop(peer, absl::PermissionDeniedError(
                       absl::StrCat(Describe(message.join()), " may not join: ",
                                    answers[0].message->refuse().reason())));
      }
    }
    SendAll(socket, std::move(answers));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Context& context, const HostPort& address, MembershipOptions options,
    CoordinatorWatch watch, const std::vector<std::string>& also) {
  if (options.job_epoch == 0) options.job_epoch = RandomEpoch();
  options.public_keys = !context.public_key().empty();
  auto host = Resolve(address.host);
  if (!host.ok()) return host.status();
  std::unique_ptr<Coordinator> coordinator(new Coordinator());
  std::promise<absl::StatusOr<std::string>> bound;
  auto endpoint = bound.get_future();
  Coordinator* self = coordinator.get();
  coordinator->thread_ = std::thread(
      [self, &context, host = *host, port = address.port, options,
       watch = std::move(watch), also, bound = std::move(bound)]() mutable {
        auto socket = Socket::Bind(context, host, port, ControlOptions());
        if (!socket.ok()) return bound.set_value(socket.status());
        for (const std::string& address : also) {
          if (absl::Status s = (*socket)->BindAlso(address); !s.ok()) {
            // This host's own processes look for it there.
            if (IsLoopback(address)) return bound.set_value(s);
            LogWarning("the coordinator's host has the address $0, too: $1",
                       address, s.message());
          }
        }
        bound.set_value((*socket)->endpoint());
        self->Run(**socket, options, watch);
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

void Coordinator::Run(Socket& socket, const MembershipOptions& options,
                      const CoordinatorWatch& watch) {
  Membership membership(options);
  PeerFilter peers(socket.endpoint());
  RefusalLog refusals;
  Looks looks;
  Time next_tick = Now();
  Time next_view = watch == nullptr ? Time::InfiniteFuture() : Now();
  const auto show = [&] {
    const Time now = Now();
    watch(now, membership.View(now));
  };
  while (stop_.status().ok()) {
    Wait({&socket}, stop_, next_tick).IgnoreError();
    Serve(socket, membership, peers, looks, anyone_joined_);
    if (const char* whose = refusals.Tell(socket)) {
      membership.OnRefusedKey(whose);
    }
    if (Now() < next_tick) continue;
    next_tick = Now() + kTick;
    SendAll(socket, membership.OnTick(Now()));
    if (Now() < next_view) continue;
    next_view = Now() + kWatchInterval;
    show();
  }
  const auto serve_until = [&](const auto& done, Time end) {
    while (!done() && Now() < end) {
      Wait({&socket}, absl::Span<const int>(), end).IgnoreError();
      Serve(socket, membership, peers, looks, anyone_joined_);
    }
  };
  serve_until([&] { return membership.over(); }, Now() + kLastWord);
  // Who starts a little later shall not look for a coordinator for a minute.
  if (membership.over() && options.late_comers) {
    serve_until([&] { return membership.everybody_knows(); },
                Now() + kLateComers);
  }
  if (!membership.over()) {
    SendAll(socket, membership.OnCoordinatorGone(reason_));
  }
  if (watch != nullptr) show();
  serve_until([&] { return socket.delivered(); },
              Now() + (membership.result().ok() ? kLateComers : kLastWord));
}

}  // namespace psring
