#include "ring/tcp_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/model/reduce.h"

namespace psring {
namespace {

using proto::WireHeader;

absl::string_view BytesOf(const float* data, Range range) {
  return {reinterpret_cast<const char*>(data + range.begin),
          range.size() * sizeof(float)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpCommunicator>> TcpCommunicator::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address) {
  auto sockets = RingSockets::Create(context, cancellation, address);
  if (!sockets.ok()) return sockets.status();
  return absl::WrapUnique(new TcpCommunicator(*std::move(sockets)));
}

void TcpCommunicator::Connect(const proto::Welcome& job, Track* track,
                              const DirectLimits& limits) {
  job_ = job;
  track_ = track;
  ranks_ = {size(), SingleNodes(size()), limits};
  sockets_->Connect(job);
}

void TcpCommunicator::UseNodes(std::vector<Node> nodes,
                               std::unique_ptr<LocalGroup> group) {
  const int node = NodeOfRank(nodes, size(), rank());
  first_member_ = nodes[node].first;
  ranks_.nodes = std::move(nodes);
  group_ = std::move(group);
  // What others wait for may have been lost with a connection of this rank's,
  // which has to send it again.
  if (group_ == nullptr) return;
  group_->WhileWaiting([this] { return sockets_->KeepAlive(); });
}

absl::Status TcpCommunicator::CheckShared(absl::Span<const float> data) const {
  if (group_ == nullptr || group_->Shares(data)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "an allreduce of data that lies outside of the arena");
}

absl::Status TcpCommunicator::AllReduce(absl::Span<float> data, float scale,
                                        Time deadline) {
  if (absl::Status s = CheckShared(data); !s.ok()) return s;
  return Run({CollectiveKind::kAllReduce, static_cast<int64_t>(data.size())},
             {.data = data,
              .scale = scale,
              .group = group_.get(),
              .deadline = deadline,
              .comes_back = true});
}

absl::Status TcpCommunicator::ReduceAndUpdate(absl::Span<float> gradients,
                                              float scale, float* parameters,
                                              UpdateSlice update,
                                              Time deadline) {
  if (absl::Status s = CheckShared(gradients); !s.ok()) return s;
  if (absl::Status s = CheckShared({parameters, gradients.size()}); !s.ok()) {
    return s;
  }
  return Run(
      {CollectiveKind::kAllReduce, static_cast<int64_t>(gradients.size())},
      {.data = gradients,
       .scale = scale,
       .group = group_.get(),
       .parameters = parameters,
       .update = &update,
       .deadline = deadline,
       .comes_back = true});
}

absl::Status TcpCommunicator::ReduceAndUpdateEncoded(
    const GradientCodec& codec, int64_t begin, absl::Span<float> gradients,
    float scale, float* parameters, UpdateSlice update, Time deadline) {
  if (size() == 1) {
    return ReduceAndUpdate(gradients, scale, parameters, update, deadline);
  }
  return Run({CollectiveKind::kAllReduceEncoded,
              static_cast<int64_t>(gradients.size())},
             {.data = gradients,
              .scale = scale,
              .codec = &codec,
              .begin = begin,
              .parameters = parameters,
              .update = &update,
              .deadline = deadline});
}

absl::Status TcpCommunicator::AllGather(absl::Span<float> data, Time deadline) {
  return Run({CollectiveKind::kAllGather, static_cast<int64_t>(data.size())},
             {.data = data, .deadline = deadline});
}

absl::Status TcpCommunicator::Broadcast(absl::Span<float> data, int root,
                                        Time deadline) {
  return Run(
      {CollectiveKind::kBroadcast, static_cast<int64_t>(data.size()), root},
      {.data = data, .deadline = deadline});
}

absl::Status TcpCommunicator::Move(absl::Span<float> data, int from, int to,
                                   Time deadline) {
  return Run(
      {CollectiveKind::kMove, static_cast<int64_t>(data.size()), from, to},
      {.data = data, .deadline = deadline});
}

absl::StatusOr<MessagePlan*> TcpCommunicator::MakePlan(
    const CollectiveShape& shape) {
  MessagePlan plan = PlanOf(ranks_, shape, rank());
  for (const RankVisit& visit : plan.schedule.visits()) {
    if (visit.to < 0) continue;
    if (absl::Status s = sockets_->ConnectTo(visit.to); !s.ok()) return s;
  }
  return &plans_.emplace(shape, std::move(plan)).first->second;
}

absl::Status TcpCommunicator::Run(const CollectiveShape& shape, Collective c) {
  const auto used = sockets_->Use();
  if (const auto known = plans_.find(shape); known != plans_.end()) {
    c.plan = &known->second;
  } else {
    const auto made = MakePlan(shape);
    if (!made.ok()) return made.status();
    c.plan = *made;
  }
  ++sequence_;
  RankSchedule& schedule = c.plan->schedule;
  schedule.Reset();
  if (c.group != nullptr) {
    if (absl::Status s = c.group->EnterShared(c.data, c.deadline.at());
        !s.ok()) {
      return s;
    }
  }
  if (c.plan->whole.has_value()) c.plan->whole->Begin(c.data.data());
  for (const int start : schedule.starts()) {
    if (absl::Status s = SendFirst(c, schedule.visits()[start]); !s.ok()) {
      return s;
    }
  }
  for (int64_t missing = schedule.num_missing(); missing > 0;) {
    if (absl::Status s = Receive(c); !s.ok()) return s;
    if (std::exchange(missing, schedule.num_missing()) == missing) continue;
    c.deadline.PutOff();
  }
  return c.group != nullptr ? c.group->Leave(c.deadline.at())
                            : absl::OkStatus();
}

absl::Status TcpCommunicator::SendFirst(const Collective& c,
                                        const RankVisit& start) {
  if (c.plan->whole.has_value()) return SendKnown(c, start);
  return start.apart && c.codec != nullptr ? SendEncoded(c, start)
                                           : SendPlain(c, start);
}

// In an allreduce this rank's values can be sent from where they lie: all that
// is made of them comes back, after they have gone. Nothing comes back in the
// others, whose caller may free its data at once.
absl::Status TcpCommunicator::SendPlain(const Collective& c,
                                        const RankVisit& start) {
  if (start.to < 0) {  // one rank alone
    Scale(c.data.data(), c.scale, start.range.size());
    Update(c, start.range, c.data.data());
    return absl::OkStatus();
  }
  const Visit& here = start.here;
  const int first = here.num_ranks == 0 ? rank() : here.first_rank;
  const bool borrow = c.comes_back && here.num_ranks == 1 && first == rank();
  for (int64_t at = start.range.begin; at < start.range.end;) {
    const Range range = SegmentAt(start.range, at);
    const absl::string_view bytes = BytesOf(DataOf(c, first), range);
    Frame payload = borrow ? Frame::Borrow(bytes.data(), bytes.size(), memory_)
                           : Frame::Copy(bytes);
    for (int i = 1; i < here.num_ranks; ++i) {
      AddInto(payload.data(), DataOf(c, (first + i) % size()) + range.begin,
              range.size());
    }
    if (absl::Status s = SendSegment(c, start, range, std::move(payload));
        !s.ok()) {
      return s;
    }
    at = range.end;
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendEncoded(const Collective& c,
                                          const RankVisit& start) {
  for (int64_t at = start.range.begin; at < start.range.end;) {
    const Range range = SegmentAt(start.range, at);
    const Range flat{c.begin + range.begin, c.begin + range.end};
    const float* values = c.data.data() + range.begin;
    Frame payload = Frame::OfSize(c.codec->EncodedBytes(flat, values));
    c.codec->Encode(flat, values, payload.data());
    if (absl::Status s = SendSegment(c, start, range, std::move(payload));
        !s.ok()) {
      return s;
    }
    at = range.end;
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendSegment(const Collective& c,
                                          const RankVisit& visit, Range range,
                                          Frame payload) {
  DataMessage message;
  message.header.set_kind(WireHeader::SEGMENT);
  message.header.set_job_epoch(job_.job_epoch());
  message.header.set_sender(static_cast<uint32_t>(rank()));
  message.header.set_sequence(sequence_);
  message.header.set_bucket(static_cast<uint32_t>(visit.route));
  message.header.set_hop(static_cast<uint32_t>(visit.visit + 1));
  message.header.set_offset(static_cast<uint64_t>(range.begin));
  message.header.set_num_elements(static_cast<uint64_t>(range.size()));
  message.header.set_dtype(visit.apart && c.codec != nullptr
                               ? WireHeader::ENCODED
                               : WireHeader::FLOAT32);
  if (!visit.here.complete) {
    gradient_bytes_sent_ += static_cast<int64_t>(payload.size());
  }
  message.payload = std::move(payload);
  return sockets_->SendTo(visit.to, std::move(message));
}

absl::Status TcpCommunicator::Receive(const Collective& c) {
  RankSchedule& schedule = c.plan->schedule;
  auto next = sockets_->TryNext(sequence_);
  while (next.ok() && !next->has_value()) {
    if (c.deadline.has_passed()) return Late(c);
    TimelineSpan span(track_, "await", {.peer_role = "worker"});
    if (track_ != nullptr) span.args().peer = schedule.awaited();
    next = sockets_->Await(sequence_, c.deadline.at());
  }
  if (!next.ok()) return next.status();
  DataMessage& message = **next;
  const WireHeader& header = message.header;
  const int64_t begin = static_cast<int64_t>(header.offset());
  const Range range{begin, begin + static_cast<int64_t>(header.num_elements())};
  const int sender = static_cast<int>(header.sender());
  const int route = static_cast<int>(header.bucket());
  const int visit = static_cast<int>(header.hop());
  RankVisit* const at = schedule.Due(route, visit, sender, range);
  const bool encoded = header.dtype() == WireHeader::ENCODED;
  const bool apart = at != nullptr && at->apart;
  if (at == nullptr || encoded != (apart && c.codec != nullptr)) {
    sockets_->Drop(
        message.peer,
        absl::InvalidArgumentError(absl::StrCat(
            "from rank ", header.sender(), ": slice ", route, ", hop ", visit,
            ", elements ", range.begin, " to ", range.end,
            ": not what was due in collective ", sequence_)),
        sender);
    return absl::OkStatus();
  }
  if (apart) return OnApart(c, *at, range, std::move(message));
  schedule.Take(*at, range);
  return OnSegment(c, *at, range, std::move(message.payload));
}

absl::Status TcpCommunicator::OnApart(const Collective& c, RankVisit& at,
                                      Range range, DataMessage message) {
  Frame values = std::move(message.payload);
  if (c.codec != nullptr) {
    const Frame encoded =
        std::exchange(values, Frame::OfSize(range.size() * sizeof(float)));
    if (absl::Status s =
            c.codec->Decode({c.begin + range.begin, c.begin + range.end},
                            encoded.view(), values.data());
        !s.ok()) {
      sockets_->Drop(message.peer, s, at.from);
      return absl::OkStatus();
    }
  }
  RankSchedule& schedule = c.plan->schedule;
  schedule.Take(at, range);
  if (c.plan->whole.has_value()) return OnRound(c, at.route, values);
  TimelineSpan span(
      track_, "sum",
      {.bytes = range.size() * static_cast<int64_t>(sizeof(float)),
       .peer = at.from,
       .peer_role = "worker"});
  float* const own = c.data.data() + range.begin;
  std::optional<Frame> sum =
      c.plan->slice->Add(at.from, range, std::move(values), own, c.scale);
  if (!sum.has_value()) {
    span.Drop();
    return absl::OkStatus();
  }
  span.End();
  UpdateOnTheWay(c, range, *sum);
  std::memcpy(ResultOf(c, rank()) + range.begin, sum->data(), sum->size());
  for (const int way_back : schedule.waiting()) {
    if (absl::Status s =
            SendSegment(c, schedule.visits()[way_back], range, sum->Share());
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::OnRound(const Collective& c, int route,
                                      const Frame& values) {
  const RankSchedule& schedule = c.plan->schedule;
  BucketSum& sum = *c.plan->whole;
  int round = sum.rounds();
  sum.Add(route / size(), values);
  const int num_waiting = static_cast<int>(schedule.waiting().size());
  for (; round < std::min(sum.rounds(), num_waiting); ++round) {
    const RankVisit& next = schedule.visits()[schedule.waiting()[round]];
    if (absl::Status s = SendKnown(c, next); !s.ok()) return s;
  }
  if (!sum.complete()) return absl::OkStatus();
  TimelineSpan span(track_, "sum",
                    {.bytes = static_cast<int64_t>(c.data.size()) *
                              static_cast<int64_t>(sizeof(float))});
  sum.Finish(c.data.data(), c.scale);
  span.End();
  Update(c, {0, static_cast<int64_t>(c.data.size())}, c.data.data());
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendKnown(const Collective& c,
                                        const RankVisit& start) {
  const Range range = start.range;
  if (range.size() == 0) return absl::OkStatus();
  return SendSegment(c, start, range,
                     Frame::Copy(c.plan->whole->Known(range.size())));
}

absl::Status TcpCommunicator::OnSegment(const Collective& c,
                                        const RankVisit& at, Range range,
                                        Frame payload) {
  const Visit& here = at.here;
  TimelineSpan span(track_, here.num_ranks > 0 ? "sum" : "copy",
                    {.bytes = static_cast<int64_t>(payload.size()),
                     .peer = at.from,
                     .peer_role = "worker"});
  for (int i = 0; i < here.num_ranks; ++i) {
    const int rank = (here.first_rank + i) % size();
    AddInto(payload.data(), DataOf(c, rank) + range.begin, range.size());
  }
  if (here.complete && here.num_ranks > 0) {
    Scale(payload.data(), c.scale, range.size());
    if (c.update != nullptr) span.End();
    UpdateOnTheWay(c, range, payload);
  }
  const int num_members = c.group != nullptr ? c.group->size() : 1;
  for (int i = 0; here.complete && i < num_members; ++i) {
    std::memcpy(ResultOf(c, (first_member_ + i) % size()) + range.begin,
                payload.data(), payload.size());
  }
  if (at.to < 0) return absl::OkStatus();
  return SendSegment(c, at, range, std::move(payload));
}

void TcpCommunicator::Update(const Collective& c, Range range,
                             const void* mean) const {
  if (c.update == nullptr) return;
  TimelineSpan span(
      track_, "update",
      {.bytes = range.size() * static_cast<int64_t>(sizeof(float))});
  (*c.update)(range, mean);
}

void TcpCommunicator::UpdateOnTheWay(const Collective& c, Range range,
                                     Frame& mean) const {
  if (c.update == nullptr) return;
  Update(c, range, mean.data());
  std::memcpy(mean.data(), c.parameters + range.begin, mean.size());
}

float* TcpCommunicator::ResultOf(const Collective& c, int rank) const {
  if (c.parameters == nullptr) return DataOf(c, rank);
  if (c.group == nullptr) return c.parameters;
  return c.group->Counterpart((rank - first_member_ + size()) % size(),
                              c.parameters);
}

absl::Status TcpCommunicator::Late(const Collective& c) const {
  const int rank = c.plan->schedule.awaited();
  if (rank < 0) return absl::InternalError("late without a missing segment");
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(job_.workers(rank)), " has sent nothing in time for collective ",
      sequence_,
      ". Its heartbeats come: it is busy with something else, or the network "
      "loses large packets on the way (MTU, firewall)"));
}

}  // namespace psring
