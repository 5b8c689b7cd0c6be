#include "ring/tcp_communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/cluster/membership.h"
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
  std::unique_ptr<TcpCommunicator> communicator(
      new TcpCommunicator(context, cancellation));
  auto inbox = SegmentInbox::Create(context, address);
  if (!inbox.ok()) return inbox.status();
  communicator->inbox_ = *std::move(inbox);
  return communicator;
}

void TcpCommunicator::Connect(const proto::Welcome& job, Track* track) {
  job_ = job;
  track_ = track;
  inbox_->JoinJob(job.job_epoch());
}

void TcpCommunicator::UseNodes(std::vector<Node> nodes,
                               std::unique_ptr<LocalGroup> group) {
  nodes_ = std::move(nodes);
  group_ = std::move(group);
}

absl::StatusOr<Socket*> TcpCommunicator::SocketTo(int rank) {
  std::unique_ptr<Socket>& socket = next_[rank];
  if (socket != nullptr) return socket.get();
  const proto::Process& peer = job_.workers(rank);
  if (peer.endpoints_size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(peer), " has published no address"));
  }
  auto connected =
      Socket::Connect(context_, peer.endpoints(0), DataSocketOptions());
  if (!connected.ok()) return connected.status();
  socket = *std::move(connected);
  return socket.get();
}

absl::Status TcpCommunicator::RunFlat(RoutePhase phase, absl::Span<float> data,
                                      float scale, absl::Time deadline) {
  return Run({.data = data,
              .scale = scale,
              .routes = RoutesOf(SingleNodes(size()), size(), phase,
                                 static_cast<int64_t>(data.size())),
              .comes_back = phase == RoutePhase::kAllReduce,
              .deadline = deadline,
              .inflows = {}});
}

absl::Status TcpCommunicator::AllReduce(absl::Span<float> data, float scale,
                                        absl::Time deadline) {
  if (nodes_.empty()) {
    return RunFlat(RoutePhase::kAllReduce, data, scale, deadline);
  }
  if (group_ != nullptr && !group_->Shares(data)) {
    return absl::InvalidArgumentError(
        "an allreduce of data that lies outside of the arena");
  }
  return Run({.data = data,
              .scale = scale,
              .routes = RoutesOf(nodes_, size(), RoutePhase::kAllReduce,
                                 static_cast<int64_t>(data.size())),
              .grouped = group_ != nullptr,
              .comes_back = true,
              .deadline = deadline,
              .inflows = {}});
}

absl::Status TcpCommunicator::AllReduceEncoded(const GradientCodec& codec,
                                               int64_t begin,
                                               absl::Span<float> data,
                                               float scale,
                                               absl::Time deadline) {
  if (size() == 1) {
    return RunFlat(RoutePhase::kAllReduce, data, scale, deadline);
  }
  return Run({.data = data,
              .scale = scale,
              .routes = DirectRoutes(size(), static_cast<int64_t>(data.size())),
              .codec = &codec,
              .begin = begin,
              .deadline = deadline,
              .inflows = {}});
}

absl::Status TcpCommunicator::ReduceScatter(absl::Span<float> data, float scale,
                                            absl::Time deadline) {
  return RunFlat(RoutePhase::kReduceScatter, data, scale, deadline);
}

absl::Status TcpCommunicator::AllGather(absl::Span<float> data,
                                        absl::Time deadline) {
  return RunFlat(RoutePhase::kAllGather, data, 1.0f, deadline);
}

absl::Status TcpCommunicator::Broadcast(absl::Span<float> data, int root,
                                        absl::Time deadline) {
  return Run({.data = data,
              .routes = {BroadcastRoute(size(), root,
                                        static_cast<int64_t>(data.size()))},
              .deadline = deadline,
              .inflows = {}});
}

absl::Status TcpCommunicator::Run(Collective c) {
  ++sequence_;
  for (int r = 0; r < static_cast<int>(c.routes.size()); ++r) {
    const Route& route = c.routes[r];
    for (int v = 1; v < static_cast<int>(route.visits.size()); ++v) {
      if (route.visits[v].agent != rank()) continue;
      Inflow& inflow = c.inflows[{r, v}];
      inflow.segments = SegmentsOf(route.range, kSegmentElements);
      c.segments_due += static_cast<int64_t>(inflow.segments.size());
    }
  }
  if (c.grouped) {
    if (absl::Status s = group_->EnterShared(c.data, c.deadline); !s.ok()) {
      return s;
    }
  }
  for (int r = 0; r < static_cast<int>(c.routes.size()); ++r) {
    if (c.routes[r].visits.front().agent != rank()) continue;
    if (c.codec != nullptr && !c.routes[r].encoded) continue;
    if (absl::Status s = SendFirst(c, r); !s.ok()) return s;
  }
  while (c.segments_due > 0) {
    if (absl::Status s = Receive(c); !s.ok()) return s;
  }
  return c.grouped ? group_->Leave(c.deadline) : absl::OkStatus();
}

float* TcpCommunicator::DataOf(const Collective& c, int rank) const {
  if (!c.grouped) return c.data.data();
  const Node& node = nodes_[NodeOfRank(nodes_, size(), rank)];
  return group_->data((rank - node.first + size()) % size());
}

absl::Status TcpCommunicator::SendFirst(const Collective& c, int route) {
  const Visit& visit = c.routes[route].visits.front();
  if (c.routes[route].visits.size() == 1) {  // one rank alone
    Scale(c.data.data(), c.scale, static_cast<int64_t>(c.data.size()));
    return absl::OkStatus();
  }
  for (const Range& range :
       SegmentsOf(c.routes[route].range, kSegmentElements)) {
    if (absl::Status s = SendSegment(c, route, 1, range,
                                     c.routes[route].encoded
                                         ? EncodedPayload(c, range)
                                         : FirstPayload(c, visit, range));
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

// In an allreduce this rank's values can be sent from where they lie: they are
// overwritten only by their own sums, which come back after they have gone.
// Nothing comes back in the others, whose caller may free its data at once.
Frame TcpCommunicator::FirstPayload(const Collective& c, const Visit& visit,
                                    Range range) {
  const int first = visit.num_ranks == 0 ? visit.agent : visit.first_rank;
  const absl::string_view bytes = BytesOf(DataOf(c, first), range);
  if (c.comes_back && visit.num_ranks == 1 && first == rank()) {
    return Frame::Borrow(bytes.data(), bytes.size());
  }
  Frame payload = Frame::Copy(bytes);
  for (int i = 1; i < visit.num_ranks; ++i) {
    AddInto(payload.data(), DataOf(c, (first + i) % size()) + range.begin,
            range.size());
  }
  return payload;
}

Frame TcpCommunicator::EncodedPayload(const Collective& c, Range range) {
  const Range flat{c.begin + range.begin, c.begin + range.end};
  const float* values = c.data.data() + range.begin;
  Frame payload = Frame::OfSize(c.codec->EncodedBytes(flat, values));
  c.codec->Encode(flat, values, payload.data());
  return payload;
}

absl::Status TcpCommunicator::SendSegment(const Collective& c, int route,
                                          int visit, Range range,
                                          Frame payload) {
  const Route& way = c.routes[route];
  auto socket = SocketTo(way.visits[visit].agent);
  if (!socket.ok()) return socket.status();
  DataMessage message;
  message.header.set_kind(WireHeader::SEGMENT);
  message.header.set_job_epoch(job_.job_epoch());
  message.header.set_sender(static_cast<uint32_t>(rank()));
  message.header.set_sequence(sequence_);
  message.header.set_bucket(static_cast<uint32_t>(route));
  message.header.set_hop(static_cast<uint32_t>(visit));
  message.header.set_offset(static_cast<uint64_t>(range.begin));
  message.header.set_num_elements(static_cast<uint64_t>(range.size()));
  message.header.set_dtype(way.encoded ? WireHeader::ENCODED
                                       : WireHeader::FLOAT32);
  if (!way.visits[visit - 1].complete) {
    gradient_bytes_ += static_cast<int64_t>(payload.size());
  }
  message.payload = std::move(payload);
  return SendData(**socket, std::move(message));
}

absl::Status TcpCommunicator::Receive(Collective& c) {
  auto message = NextMessage(c);
  if (!message.ok()) return message.status();
  const WireHeader& header = message->header;
  const int route = static_cast<int>(header.bucket());
  const int visit = static_cast<int>(header.hop());
  const Range range{static_cast<int64_t>(header.offset()),
                    static_cast<int64_t>(header.offset()) +
                        static_cast<int64_t>(header.num_elements())};
  const auto found = c.inflows.find({route, visit});
  if (found == c.inflows.end() ||
      c.routes[route].visits[visit - 1].agent !=
          static_cast<int>(header.sender()) ||
      c.routes[route].encoded != (header.dtype() == WireHeader::ENCODED) ||
      found->second.received == found->second.segments.size() ||
      !(found->second.segments[found->second.received] == range)) {
    inbox_->Drop(message->peer,
                 absl::InvalidArgumentError(absl::StrCat(
                     "from rank ", header.sender(), ": slice ", route, ", hop ",
                     visit, ", elements ", range.begin, " to ", range.end,
                     ": not what was due in collective ", sequence_)));
    return absl::OkStatus();
  }
  Frame payload = std::move(message->payload);
  if (c.routes[route].encoded) {
    Frame values = Frame::OfSize(range.size() * sizeof(float));
    if (absl::Status s =
            c.codec->Decode({c.begin + range.begin, c.begin + range.end},
                            payload.view(), values.data());
        !s.ok()) {
      inbox_->Drop(message->peer, s);
      return absl::OkStatus();
    }
    payload = std::move(values);
  }
  ++found->second.received;
  --c.segments_due;
  return c.routes[route].encoded
             ? OnContribution(c, static_cast<int>(header.sender()), range,
                              std::move(payload))
             : OnSegment(c, route, visit, range, std::move(payload));
}

absl::Status TcpCommunicator::OnContribution(Collective& c, int from,
                                             Range range, Frame values) {
  const int n = size();
  Contributions& all = c.contributions[range.begin];
  if (all.values.empty()) {
    all.values.resize(n);
    all.missing = n - 1;
  }
  all.values[from] = std::move(values);
  if (--all.missing > 0) return absl::OkStatus();
  TimelineSpan span(
      track_, "sum",
      {.bytes = range.size() * static_cast<int64_t>(sizeof(float)),
       .peer = from,
       .peer_role = "worker"});
  Frame sum = std::move(all.values[(rank() + 1) % n]);
  for (int i = 2; i < n; ++i) {
    AddInto(sum.data(), all.values[(rank() + i) % n].data(), range.size());
  }
  AddInto(sum.data(), c.data.data() + range.begin, range.size());
  Scale(sum.data(), c.scale, range.size());
  c.contributions.erase(range.begin);
  WriteToMembers(c, range, sum.data());
  const int way_round = n * (n - 1) + rank();  // DirectRoutes
  return SendSegment(c, way_round, 1, range, std::move(sum));
}

absl::Status TcpCommunicator::OnSegment(Collective& c, int route, int visit,
                                        Range range, Frame payload) {
  const std::vector<Visit>& visits = c.routes[route].visits;
  const Visit& here = visits[visit];
  TimelineSpan span(track_, here.num_ranks > 0 ? "sum" : "copy",
                    {.bytes = static_cast<int64_t>(payload.size()),
                     .peer = visits[visit - 1].agent,
                     .peer_role = "worker"});
  for (int i = 0; i < here.num_ranks; ++i) {
    const int rank = (here.first_rank + i) % size();
    AddInto(payload.data(), DataOf(c, rank) + range.begin, range.size());
  }
  if (here.complete && here.num_ranks > 0) {
    Scale(payload.data(), c.scale, range.size());
  }
  if (here.complete) WriteToMembers(c, range, payload.data());
  if (visit + 1 == static_cast<int>(visits.size())) return absl::OkStatus();
  return SendSegment(c, route, visit + 1, range, std::move(payload));
}

void TcpCommunicator::WriteToMembers(const Collective& c, Range range,
                                     const void* values) {
  const int members = c.grouped ? group_->size() : 1;
  for (int i = 0; i < members; ++i) {
    float* data = c.grouped ? group_->data(i) : c.data.data();
    std::memcpy(data + range.begin, values, range.size() * sizeof(float));
  }
}

absl::StatusOr<DataMessage> TcpCommunicator::NextMessage(const Collective& c) {
  while (true) {
    auto message = inbox_->TryNext(sequence_);
    if (!message.ok()) return message.status();
    if (message->has_value()) return **std::move(message);
    if (absl::Now() > c.deadline) return Late(c);
    TimelineSpan span(track_, "await", {.peer_role = "worker"});
    if (track_ != nullptr) span.args().peer = Awaited(c);
    if (absl::Status s = Wait({&inbox_->socket()}, cancellation_, c.deadline);
        !s.ok()) {
      return s;
    }
  }
}

int TcpCommunicator::Awaited(const Collective& c) const {
  for (const auto& [place, inflow] : c.inflows) {
    if (inflow.received == inflow.segments.size()) continue;
    const auto [route, visit] = place;
    return c.routes[route].visits[visit - 1].agent;
  }
  return -1;
}

absl::Status TcpCommunicator::Late(const Collective& c) const {
  const int rank = Awaited(c);
  if (rank < 0) return absl::InternalError("late without a missing segment");
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(job_.workers(rank)),
                   " has sent nothing in time for collective ", sequence_));
}

int64_t TcpCommunicator::bytes_sent() const {
  int64_t bytes = 0;
  for (const auto& [rank, socket] : next_) bytes += socket->bytes_sent();
  return bytes;
}

}  // namespace psring
