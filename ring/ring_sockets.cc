#include "ring/ring_sockets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

// Connections are tended so often, or after so many messages: to look at all of
// them at each would cost more than a small message.
constexpr absl::Duration kTendInterval = absl::Milliseconds(100);
constexpr int kTendAfterMessages = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<RingSockets>> RingSockets::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address) {
  std::unique_ptr<RingSockets> sockets(new RingSockets(context, cancellation));
  auto inbox = SegmentInbox::Create(context, address);
  if (!inbox.ok()) return inbox.status();
  sockets->inbox_ = *std::move(inbox);
  sockets->all_ = {&sockets->inbox_->socket()};
  return sockets;
}

RingSockets::~RingSockets() {
  stop_.Cancel(absl::CancelledError("the ring ends"));
  if (tender_.joinable()) tender_.join();
}

void RingSockets::Connect(const proto::Welcome& job) {
  job_ = job;
  to_.resize(job.workers_size());
  inbox_->JoinJob(job.job_epoch());
  if (job.workers_size() > 1) {
    tender_ = std::thread([this] { TendBetweenCollectives(); });
  }
}

absl::Status RingSockets::ConnectTo(int rank) {
  if (to_[rank] != nullptr) return absl::OkStatus();
  const proto::Process& peer = job_.workers(rank);
  if (peer.endpoints_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(peer), " has published no address"));
  }
  auto socket = Socket::Connect(context_, peer.endpoints(0),
                                DataSocketOptions(peer.public_key()));
  if (!socket.ok()) return socket.status();
  to_[rank] = *std::move(socket);
  all_.push_back(to_[rank].get());
  ranks_.push_back(rank);
  return absl::OkStatus();
}

absl::Status RingSockets::SendTo(int rank, DataMessage message) {
  Socket& socket = *to_[rank];
  const int64_t before = socket.bytes_sent();
  const absl::Status status = SendData(socket, std::move(message));
  bytes_sent_ += socket.bytes_sent() - before;
  return status;
}

absl::StatusOr<std::optional<DataMessage>> RingSockets::TryNext(
    uint64_t sequence) {
  auto next = inbox_->TryNext(sequence);
  bytes_received_ = inbox_->socket().bytes_received();
  // What is sent on is kept until its receiver has said that it has come.
  if (next.ok() && next->has_value() && ++untended_ >= kTendAfterMessages) {
    Tend().IgnoreError();  // there is work; Await will say it
  }
  return next;
}

absl::StatusOr<std::optional<DataMessage>> RingSockets::Await(uint64_t sequence,
                                                              Time deadline) {
  if (absl::Status s = Wait(absl::MakeSpan(all_).first(1), cancellation_,
                            std::min(deadline, Now() + kTendInterval));
      !s.ok()) {
    return s;
  }
  auto next = TryNext(sequence);
  if (next.ok() && !next->has_value()) {
    if (absl::Status s = Tend(); !s.ok()) return s;
  }
  return next;
}

absl::Status RingSockets::KeepAlive() {
  inbox_->socket().Acknowledge();
  return Tend();
}

// Nobody answers a segment, but its receiver says now and then what it has.
absl::Status RingSockets::Tend() {
  untended_ = 0;
  // Where the job has failed, others may be gone.
  if (!cancellation_.status().ok()) return cancellation_.status();
  Wait(absl::MakeSpan(all_).subspan(1), absl::Span<const int>(), Now())
      .IgnoreError();
  absl::Status status;
  for (const int rank : ranks_) {
    const absl::Status s = to_[rank]->TryReceive().status();
    if (s.ok() || !status.ok()) continue;
    status =
        absl::Status(s.code(), absl::StrCat(Describe(job_.workers(rank)), ": ",
                                            std::string(s.message())));
  }
  return status;
}

// A rank that is done with a collective may compute or wait elsewhere while
// another one still needs its last segments, whose connection has broken. What
// has come is acknowledged here, where nobody waits for it: an answer to each
// small message would cost as much as the message.
void RingSockets::TendBetweenCollectives() {
  while (stop_.SleepUntil(Now() + kTendInterval).ok()) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) KeepAlive().IgnoreError();  // Await will say it
  }
}

}  // namespace psring
