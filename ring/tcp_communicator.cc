#include "ring/tcp_communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/cluster/membership.h"
#include "common/model/reduce.h"
#include "spdlog/spdlog.h"

namespace psring {
namespace {

using proto::WireHeader;

// 256 KiB: large enough that a message's cost vanishes, small enough that all
// hops of a 25 MB bucket are busy at once.
constexpr int64_t kSegmentElements = 64 * 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<TcpCommunicator>> TcpCommunicator::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address) {
  std::unique_ptr<TcpCommunicator> communicator(
      new TcpCommunicator(context, cancellation));
  auto listener = Socket::Bind(context, address, 0, DataSocketOptions());
  if (!listener.ok()) return listener.status();
  communicator->listener_ = *std::move(listener);
  return communicator;
}

absl::Status TcpCommunicator::Connect(const proto::Welcome& job) {
  job_ = job;
  const proto::Process& next = job.workers((rank() + 1) % size());
  if (next.endpoints_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(next), " has published no address"));
  }
  auto socket =
      Socket::Connect(context_, next.endpoints(0), DataSocketOptions());
  if (!socket.ok()) return socket.status();
  next_ = *std::move(socket);
  return absl::OkStatus();
}

absl::Status TcpCommunicator::AllReduce(absl::Span<float> data, float scale,
                                        absl::Time deadline) {
  return Run({.data = data,
              .scale = scale,
              .reduces = true,
              .gathers = true,
              .deadline = deadline,
              .stages = {}});
}

absl::Status TcpCommunicator::ReduceScatter(absl::Span<float> data, float scale,
                                            absl::Time deadline) {
  return Run({.data = data,
              .scale = scale,
              .reduces = true,
              .gathers = false,
              .deadline = deadline,
              .stages = {}});
}

absl::Status TcpCommunicator::AllGather(absl::Span<float> data,
                                        absl::Time deadline) {
  return Run({.data = data,
              .scale = 1.0f,
              .reduces = false,
              .gathers = true,
              .deadline = deadline,
              .stages = {}});
}

std::vector<Range> TcpCommunicator::SegmentsOfSlice(const Collective& c,
                                                    int slice) const {
  const Range all{0, static_cast<int64_t>(c.data.size())};
  return SegmentsOf(NearEqualPart(all, size(), slice), kSegmentElements);
}

void TcpCommunicator::AddStages(Collective& c, RingPhase phase) {
  for (int hop = 0; hop < num_hops(); ++hop) {
    const int slice = SliceReceived(phase, rank(), size(), hop);
    c.stages.push_back({SegmentsOfSlice(c, slice), 0});
    c.segments_due += static_cast<int64_t>(c.stages.back().segments.size());
  }
}

// Stages count the hops of both phases: 0 to N-2 reduce (or, in an allgather
// alone, gather), N-1 to 2N-3 gather.
absl::Status TcpCommunicator::Run(Collective c) {
  ++sequence_;
  if (size() == 1) {
    if (c.reduces) Scale(c.data.data(), c.scale, c.data.size());
    return absl::OkStatus();
  }
  if (c.reduces) AddStages(c, RingPhase::kReduceScatter);
  if (c.gathers) AddStages(c, RingPhase::kAllGather);
  const RingPhase first =
      c.reduces ? RingPhase::kReduceScatter : RingPhase::kAllGather;
  if (absl::Status s = SendFirst(c, first); !s.ok()) return s;
  return ReceiveAll(c);
}

// In an allreduce our bytes can be sent from where they lie: they are
// overwritten only by their own sums, which come back after they have gone.
// Nothing comes back in the others, whose caller may free its data at once.
absl::Status TcpCommunicator::SendFirst(const Collective& c, RingPhase phase) {
  const int slice = FirstSliceSent(phase, rank(), size());
  const bool comes_back = c.reduces && c.gathers;
  for (const Range& range : SegmentsOfSlice(c, slice)) {
    const float* data = c.data.data() + range.begin;
    const size_t bytes = range.size() * sizeof(float);
    Frame payload =
        comes_back ? Frame::Borrow(data, bytes)
                   : Frame::Copy({reinterpret_cast<const char*>(data), bytes});
    if (absl::Status s = SendSegment(0, range, std::move(payload)); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendSegment(int stage, Range range,
                                          Frame payload) {
  DataMessage message;
  message.header.set_kind(WireHeader::SEGMENT);
  message.header.set_job_epoch(job_.job_epoch());
  message.header.set_sender(static_cast<uint32_t>(rank()));
  message.header.set_sequence(sequence_);
  message.header.set_hop(static_cast<uint32_t>(stage));
  message.header.set_offset(static_cast<uint64_t>(range.begin));
  message.header.set_num_elements(static_cast<uint64_t>(range.size()));
  message.header.set_dtype(WireHeader::FLOAT32);
  message.payload = std::move(payload);
  return SendData(*next_, std::move(message));
}

absl::Status TcpCommunicator::Receive(Collective& c) {
  auto message =
      NextMessage(absl::StrCat("collective ", sequence_), c.deadline);
  if (!message.ok()) return message.status();
  const WireHeader& header = message->header;
  const size_t stage = header.hop();
  const Range range{static_cast<int64_t>(header.offset()),
                    static_cast<int64_t>(header.offset()) +
                        static_cast<int64_t>(header.num_elements())};
  if (stage >= c.stages.size() ||
      c.stages[stage].received == c.stages[stage].segments.size() ||
      !(c.stages[stage].segments[c.stages[stage].received] == range)) {
    Drop(message->peer,
         absl::InvalidArgumentError(absl::StrCat(
             "hop ", stage, ", elements ", range.begin, " to ", range.end,
             ": not what was due in collective ", sequence_)));
    return absl::OkStatus();
  }
  ++c.stages[stage].received;
  --c.segments_due;
  return OnSegment(c, static_cast<int>(stage), range,
                   std::move(message->payload));
}

absl::Status TcpCommunicator::OnSegment(Collective& c, int stage, Range range,
                                        Frame payload) {
  float* mine = c.data.data() + range.begin;
  const size_t bytes = range.size() * sizeof(float);
  const int last_stage = static_cast<int>(c.stages.size()) - 1;
  const bool reducing = c.reduces && stage < num_hops();
  if (reducing) {
    AddInto(payload.data(), mine, range.size());
    if (stage == num_hops() - 1) {
      Scale(payload.data(), c.scale, range.size());
    }
  }
  if (!reducing || stage == num_hops() - 1) {
    std::memcpy(mine, payload.data(), bytes);
  }
  if (stage == last_stage) return absl::OkStatus();
  return SendSegment(stage + 1, range, std::move(payload));
}

// The root's segments go round until the rank before it: its neighbour gets
// them in stage 0, the next in stage 1, and so on.
absl::Status TcpCommunicator::Broadcast(absl::Span<float> data, int root,
                                        absl::Time deadline) {
  ++sequence_;
  const int distance = (rank() - root + size()) % size();
  const Range all{0, static_cast<int64_t>(data.size())};
  Collective c{.data = data, .deadline = deadline, .stages = {}};
  if (distance == 0 && size() > 1) {
    for (const Range& range : SegmentsOf(all, kSegmentElements)) {
      Frame payload =
          Frame::Copy({reinterpret_cast<const char*>(data.data() + range.begin),
                       range.size() * sizeof(float)});
      if (absl::Status s = SendSegment(0, range, std::move(payload)); !s.ok()) {
        return s;
      }
    }
  }
  if (distance == 0) return absl::OkStatus();
  c.stages.resize(num_hops());
  c.stages[distance - 1].segments = SegmentsOf(all, kSegmentElements);
  c.segments_due = static_cast<int64_t>(c.stages[distance - 1].segments.size());
  return ReceiveAll(c);
}

absl::Status TcpCommunicator::ReceiveAll(Collective& c) {
  while (c.segments_due > 0) {
    if (absl::Status s = Receive(c); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<DataMessage> TcpCommunicator::NextMessage(
    const std::string& what, absl::Time deadline) {
  while (true) {
    auto frames = listener_->TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) {
      if (absl::Now() > deadline) return Late(what);
      if (absl::Status s = Wait({listener_.get()}, cancellation_, deadline);
          !s.ok()) {
        return s;
      }
      continue;
    }
    const std::string peer((**frames)[0].view());
    if (dropped_.contains(peer)) continue;
    auto message = ParseData(*std::move(*frames), /*at_router=*/true);
    const absl::Status status =
        message.ok() ? CheckHeader(message->header) : message.status();
    if (status.ok()) return message;
    Drop(peer, status);
  }
}

absl::Status TcpCommunicator::CheckHeader(const WireHeader& header) const {
  const int previous = (rank() - 1 + size()) % size();
  if (header.kind() != WireHeader::SEGMENT ||
      header.dtype() != WireHeader::FLOAT32) {
    return absl::InvalidArgumentError("not a float32 segment");
  }
  if (header.job_epoch() != job_.job_epoch()) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sender() != static_cast<uint32_t>(previous)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "from rank ", header.sender(), ", but the one before is ", previous));
  }
  if (header.sequence() != sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("collective ",
                                                   header.sequence(), ", but ",
                                                   sequence_, " is under way"));
  }
  return absl::OkStatus();
}

void TcpCommunicator::Drop(const std::string& peer, const absl::Status& why) {
  ++malformed_;
  dropped_.insert(peer);
  spdlog::warn("dropped peer {} of {}: {}", absl::BytesToHexString(peer),
               endpoint(), std::string(why.message()));
}

absl::Status TcpCommunicator::Late(const std::string& what) const {
  const proto::Process& previous = job_.workers((rank() - 1 + size()) % size());
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(previous), " has sent nothing in time for ", what));
}

int64_t TcpCommunicator::bytes_sent() const {
  return next_ ? next_->bytes_sent() : 0;
}

int64_t TcpCommunicator::bytes_received() const {
  return listener_->bytes_received();
}

}  // namespace psring
