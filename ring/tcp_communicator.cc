#include "ring/tcp_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/model/reduce.h"

namespace psring {
namespace {

using proto::WireHeader;

// Links are tended so often, or after so many waits for a message: to look at
// all of them in each would cost more than a small message.
constexpr absl::Duration kTendInterval = absl::Milliseconds(100);
constexpr int kTendAfterMessages = 16;

absl::string_view BytesOf(const float* data, Range range) {
  return {reinterpret_cast<const char*>(data + range.begin),
          range.size() * sizeof(float)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpCommunicator>> TcpCommunicator::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address) {
  std::unique_ptr<TcpCommunicator> communicator(
      new TcpCommunicator(context, cancellation));
  auto inbox = SegmentInbox::Create(context, address);
  if (!inbox.ok()) return inbox.status();
  communicator->inbox_ = *std::move(inbox);
  communicator->sockets_ = {&communicator->inbox_->socket()};
  return communicator;
}

void TcpCommunicator::Connect(const proto::Welcome& job, Track* track,
                              const DirectLimits& limits) {
  job_ = job;
  track_ = track;
  limits_ = limits;
  nodes_ = SingleNodes(size());
  next_.resize(size());
  inbox_->JoinJob(job.job_epoch());
  if (size() > 1) tender_ = std::thread([this] { TendBetweenCollectives(); });
}

void TcpCommunicator::UseNodes(std::vector<Node> nodes,
                               std::unique_ptr<LocalGroup> group) {
  nodes_ = std::move(nodes);
  first_member_ = nodes_[NodeOfRank(nodes_, size(), rank())].first;
  group_ = std::move(group);
  // What others wait for may have been lost with a connection of this rank's,
  // which has to send it again.
  if (group_ == nullptr) return;
  group_->WhileWaiting([this] {
    TendLinks();
    inbox_->socket().Acknowledge();
  });
}

absl::Status TcpCommunicator::AllReduce(absl::Span<float> data, float scale,
                                        Time deadline) {
  if (group_ != nullptr && !group_->Shares(data)) {
    return absl::InvalidArgumentError(
        "an allreduce of data that lies outside of the arena");
  }
  return Run({Kind::kAllReduce, 0, static_cast<int64_t>(data.size())},
             {.data = data,
              .scale = scale,
              .group = group_.get(),
              .deadline = deadline,
              .comes_back = true});
}

absl::Status TcpCommunicator::AllReduceEncoded(const GradientCodec& codec,
                                               int64_t begin,
                                               absl::Span<float> data,
                                               float scale, Time deadline) {
  if (size() == 1) return AllReduce(data, scale, deadline);
  return Run({Kind::kAllReduceEncoded, 0, static_cast<int64_t>(data.size())},
             {.data = data,
              .scale = scale,
              .codec = &codec,
              .begin = begin,
              .deadline = deadline});
}

absl::Status TcpCommunicator::AllGather(absl::Span<float> data, Time deadline) {
  return Run({Kind::kAllGather, 0, static_cast<int64_t>(data.size())},
             {.data = data, .deadline = deadline});
}

absl::Status TcpCommunicator::Broadcast(absl::Span<float> data, int root,
                                        Time deadline) {
  return Run({Kind::kBroadcast, root, static_cast<int64_t>(data.size())},
             {.data = data, .deadline = deadline});
}

std::vector<Route> TcpCommunicator::RoutesOf(const Shape& shape) const {
  const int64_t elements = shape.num_elements;
  switch (shape.kind) {
    case Kind::kAllReduce:
      switch (AllReduceWayOf(elements)) {
        case AllReduceWay::kRing:
          return AllReduceRoutes(nodes_, size(), elements);
        case AllReduceWay::kOwners:
          return DirectRoutes(size(), elements, WayBack::kStraight);
        case AllReduceWay::kEverybody:
          return EverybodyRoutes(size(), elements);
      }
      break;
    case Kind::kAllReduceEncoded:
      return DirectRoutes(size(), elements,
                          AllReduceWayOf(elements) == AllReduceWay::kRing
                              ? WayBack::kRound
                              : WayBack::kStraight);
    case Kind::kAllGather:
      return AllGatherRoutes(size(), elements);
    case Kind::kBroadcast:
      return {BroadcastRoute(size(), shape.root, elements)};
  }
  return {};
}

absl::StatusOr<TcpCommunicator::Plan*> TcpCommunicator::MakePlan(
    const Shape& shape) {
  std::vector<Route> routes = RoutesOf(shape);
  for (const Route& route : routes) {
    for (size_t v = 1; v < route.visits.size(); ++v) {
      if (route.visits[v - 1].agent != rank()) continue;
      if (absl::Status s = ConnectTo(route.visits[v].agent); !s.ok()) return s;
    }
  }
  Plan plan{RankSchedule(std::move(routes), rank()), {}, {}};
  const std::vector<Route>& made = plan.schedule.routes();
  if (!made.empty() && made.front().apart) {
    if (shape.kind == Kind::kAllReduce &&
        AllReduceWayOf(shape.num_elements) == AllReduceWay::kEverybody) {
      plan.whole.emplace(shape.num_elements, size(), rank());
    } else {
      plan.slice.emplace(NearEqualPart({0, shape.num_elements}, size(), rank()),
                         size(), rank());
    }
  }
  return &plans_.emplace(shape, std::move(plan)).first->second;
}

absl::Status TcpCommunicator::ConnectTo(int rank) {
  if (next_[rank] != nullptr) return absl::OkStatus();
  const proto::Process& peer = job_.workers(rank);
  if (peer.endpoints_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(peer), " has published no address"));
  }
  auto socket = Socket::Connect(context_, peer.endpoints(0),
                                DataSocketOptions(peer.public_key()));
  if (!socket.ok()) return socket.status();
  next_[rank] = *std::move(socket);
  sockets_.push_back(next_[rank].get());
  return absl::OkStatus();
}

absl::Status TcpCommunicator::Run(const Shape& shape, Collective c) {
  const std::lock_guard<std::mutex> lock(mutex_);
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
    if (absl::Status s = c.group->EnterShared(c.data, c.deadline); !s.ok()) {
      return s;
    }
  }
  if (c.plan->whole.has_value()) c.plan->whole->Begin(c.data.data());
  for (const int route : schedule.starts()) {
    if (absl::Status s = SendFirst(c, route); !s.ok()) return s;
  }
  while (!schedule.complete()) {
    if (absl::Status s = Receive(c); !s.ok()) return s;
  }
  return c.group != nullptr ? c.group->Leave(c.deadline) : absl::OkStatus();
}

TcpCommunicator::~TcpCommunicator() {
  stop_.Cancel(absl::CancelledError("the ring ends"));
  if (tender_.joinable()) tender_.join();
}

// Nobody answers a segment, but its receiver says now and then what it has.
void TcpCommunicator::TendLinks() {
  untended_ = 0;
  Wait(absl::MakeSpan(sockets_).subspan(1), absl::Span<const int>(), Now())
      .IgnoreError();
  for (size_t i = 1; i < sockets_.size(); ++i) {
    sockets_[i]->TryReceive().IgnoreError();
  }
}

// A rank that is done with a collective may compute or wait elsewhere while
// another one still needs its last segments, whose connection has broken. What
// has come is acknowledged here, where nobody waits for it: an answer to each
// small message would cost as much as the message.
void TcpCommunicator::TendBetweenCollectives() {
  while (stop_.SleepUntil(Now() + kTendInterval).ok()) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    TendLinks();
    inbox_->socket().Acknowledge();
  }
}

absl::Status TcpCommunicator::SendFirst(const Collective& c, int route) {
  if (c.plan->whole.has_value()) return SendKnown(c, route);
  const bool apart = c.plan->schedule.routes()[route].apart;
  return apart && c.codec != nullptr ? SendEncoded(c, route)
                                     : SendPlain(c, route);
}

// In an allreduce this rank's values can be sent from where they lie: they are
// overwritten only by their own sums, which come back after they have gone.
// Nothing comes back in the others, whose caller may free its data at once.
absl::Status TcpCommunicator::SendPlain(const Collective& c, int route) {
  const Route& way = c.plan->schedule.routes()[route];
  const Visit& start = way.visits[0];
  if (way.visits.size() == 1) {  // one rank alone
    Scale(c.data.data(), c.scale, static_cast<int64_t>(c.data.size()));
    return absl::OkStatus();
  }
  const int first = start.num_ranks == 0 ? rank() : start.first_rank;
  const bool borrow = c.comes_back && start.num_ranks == 1 && first == rank();
  for (int64_t at = way.range.begin; at < way.range.end;) {
    const Range range = SegmentAt(way.range, at);
    const absl::string_view bytes = BytesOf(DataOf(c, first), range);
    Frame payload =
        borrow ? Frame::Borrow(bytes.data(), bytes.size()) : Frame::Copy(bytes);
    for (int i = 1; i < start.num_ranks; ++i) {
      AddInto(payload.data(), DataOf(c, (first + i) % size()) + range.begin,
              range.size());
    }
    if (absl::Status s = SendSegment(c, route, 1, range, std::move(payload));
        !s.ok()) {
      return s;
    }
    at = range.end;
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendEncoded(const Collective& c, int route) {
  const Range whole = c.plan->schedule.routes()[route].range;
  for (int64_t at = whole.begin; at < whole.end;) {
    const Range range = SegmentAt(whole, at);
    const Range flat{c.begin + range.begin, c.begin + range.end};
    const float* values = c.data.data() + range.begin;
    Frame payload = Frame::OfSize(c.codec->EncodedBytes(flat, values));
    c.codec->Encode(flat, values, payload.data());
    if (absl::Status s = SendSegment(c, route, 1, range, std::move(payload));
        !s.ok()) {
      return s;
    }
    at = range.end;
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendSegment(const Collective& c, int route,
                                          int visit, Range range,
                                          Frame payload) {
  const Route& way = c.plan->schedule.routes()[route];
  DataMessage message;
  message.header.set_kind(WireHeader::SEGMENT);
  message.header.set_job_epoch(job_.job_epoch());
  message.header.set_sender(static_cast<uint32_t>(rank()));
  message.header.set_sequence(sequence_);
  message.header.set_bucket(static_cast<uint32_t>(route));
  message.header.set_hop(static_cast<uint32_t>(visit));
  message.header.set_offset(static_cast<uint64_t>(range.begin));
  message.header.set_num_elements(static_cast<uint64_t>(range.size()));
  message.header.set_dtype(way.apart && c.codec != nullptr
                               ? WireHeader::ENCODED
                               : WireHeader::FLOAT32);
  if (!way.visits[visit - 1].complete) {
    gradient_bytes_sent_ += static_cast<int64_t>(payload.size());
  }
  message.payload = std::move(payload);
  Socket& socket = *next_[way.visits[visit].agent];
  const int64_t before = socket.bytes_sent();
  const absl::Status status = SendData(socket, std::move(message));
  bytes_sent_ += socket.bytes_sent() - before;
  return status;
}

absl::Status TcpCommunicator::Receive(const Collective& c) {
  RankSchedule& schedule = c.plan->schedule;
  auto next = inbox_->TryNext(sequence_);
  while (next.ok() && !next->has_value()) {
    if (Now() > c.deadline) return Late(c);
    TimelineSpan span(track_, "await", {.peer_role = "worker"});
    if (track_ != nullptr) span.args().peer = schedule.awaited();
    if (absl::Status s = Wait(absl::MakeSpan(sockets_).first(1), cancellation_,
                              std::min(c.deadline, Now() + kTendInterval));
        !s.ok()) {
      return s;
    }
    span.End();
    next = inbox_->TryNext(sequence_);
    const bool nothing = next.ok() && !next->has_value();
    if (nothing || ++untended_ == kTendAfterMessages) TendLinks();
  }
  if (!next.ok()) return next.status();
  bytes_received_ = inbox_->socket().bytes_received();
  DataMessage& message = **next;
  const WireHeader& header = message.header;
  const int64_t begin = static_cast<int64_t>(header.offset());
  const Range range{begin, begin + static_cast<int64_t>(header.num_elements())};
  const int sender = static_cast<int>(header.sender());
  const int route = static_cast<int>(header.bucket());
  const int visit = static_cast<int>(header.hop());
  RankSchedule::Inflow* const at = schedule.Due(route, visit, sender, range);
  const bool encoded = header.dtype() == WireHeader::ENCODED;
  const bool apart = at != nullptr && schedule.routes()[route].apart;
  if (at == nullptr || encoded != (apart && c.codec != nullptr)) {
    inbox_->Drop(message.peer,
                 absl::InvalidArgumentError(absl::StrCat(
                     "from rank ", header.sender(), ": slice ", route, ", hop ",
                     visit, ", elements ", range.begin, " to ", range.end,
                     ": not what was due in collective ", sequence_)));
    return absl::OkStatus();
  }
  if (apart) return OnApart(c, *at, range, std::move(message));
  schedule.Take(*at, range);
  return OnSegment(c, *at, range, std::move(message.payload));
}

absl::Status TcpCommunicator::OnApart(const Collective& c,
                                      RankSchedule::Inflow& at, Range range,
                                      DataMessage message) {
  Frame values = std::move(message.payload);
  if (c.codec != nullptr) {
    const Frame encoded =
        std::exchange(values, Frame::OfSize(range.size() * sizeof(float)));
    if (absl::Status s =
            c.codec->Decode({c.begin + range.begin, c.begin + range.end},
                            encoded.view(), values.data());
        !s.ok()) {
      inbox_->Drop(message.peer, s);
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
  std::memcpy(own, sum->data(), sum->size());
  for (const int way_back : schedule.waiting()) {
    if (absl::Status s = SendSegment(c, way_back, 1, range, sum->Share());
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
    const int next = schedule.waiting()[round];
    if (absl::Status s = SendKnown(c, next); !s.ok()) return s;
  }
  if (!sum.complete()) return absl::OkStatus();
  TimelineSpan span(track_, "sum",
                    {.bytes = static_cast<int64_t>(c.data.size()) *
                              static_cast<int64_t>(sizeof(float))});
  sum.Finish(c.data.data(), c.scale);
  return absl::OkStatus();
}

absl::Status TcpCommunicator::SendKnown(const Collective& c, int route) {
  const Range range = c.plan->schedule.routes()[route].range;
  if (range.size() == 0) return absl::OkStatus();
  return SendSegment(c, route, 1, range,
                     Frame::Copy(c.plan->whole->Known(range.size())));
}

absl::Status TcpCommunicator::OnSegment(const Collective& c,
                                        const RankSchedule::Inflow& at,
                                        Range range, Frame payload) {
  const std::vector<Visit>& visits = c.plan->schedule.routes()[at.route].visits;
  const Visit& here = visits[at.visit];
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
  }
  const int num_members = c.group != nullptr ? c.group->size() : 1;
  for (int i = 0; here.complete && i < num_members; ++i) {
    std::memcpy(DataOf(c, (first_member_ + i) % size()) + range.begin,
                payload.data(), payload.size());
  }
  if (at.visit + 1 == static_cast<int>(visits.size())) return absl::OkStatus();
  return SendSegment(c, at.route, at.visit + 1, range, std::move(payload));
}

absl::Status TcpCommunicator::Late(const Collective& c) const {
  const int rank = c.plan->schedule.awaited();
  if (rank < 0) return absl::InternalError("late without a missing segment");
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(job_.workers(rank)),
                   " has sent nothing in time for collective ", sequence_));
}

}  // namespace psring
