#include "lab/predict/network.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/uniform.h"

namespace psring {
namespace {

// The standard deviation of the logarithm of a flow's weight. Measured, and not
// fitted to steps: that of the bytes which the 2 to 8 flows of one worker had
// brought to the servers' threads when they had brought a quarter, or half, of
// all was 0.25 to 0.55 (2 to 6 workers, 1 to 4 servers, links of 0.1 and 2
// Gbit/s).
constexpr double kUnfairness = 0.4;

// What Linux lets a TCP socket take at most before the link has: tcp_wmem.
constexpr double kSocketBytes = 4 << 20;

// How many happen between looks at whether to go on: some milliseconds.
constexpr int64_t kEventsALook = 4096;

}  // namespace

Network::Network(const Hardware& hardware, Owner& owner,
                 const std::vector<int>& counts, uint64_t seed,
                 double packet_bytes)
    : hardware_(hardware),
      packet_bytes_(packet_bytes),
      owner_(owner),
      nodes_(counts.size()),
      random_(seed) {
  for (size_t i = 0; i < counts.size(); ++i) {
    nodes_[i].count = counts[i];
    // Its bucket is full.
    nodes_[i].out_until = nodes_[i].in_until = -hardware.burst_s;
  }
}

Network::Lane& Network::LaneOf(int node, int lane) {
  std::vector<Lane>& lanes = nodes_[node].lanes;
  if (static_cast<int>(lanes.size()) <= lane) lanes.resize(lane + 1);
  return lanes[lane];
}

void Network::Add(double at, Kind kind, const Message& message, int lane) {
  events_.push({at, order_++, kind, message, lane});
}

void Network::SetTimer(double at, const Message& what) {
  Add(std::max(at, now_), Kind::kTimer, what);
}

void Network::Send(const Message& message, int lane_index) {
  if (message.fan_out == 0) return Add(now_, Kind::kArrived, message);
  int slot = static_cast<int>(waiting_.size());
  if (free_.empty()) {
    waiting_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  waiting_[slot] = {message, message.bytes, -1};
  Lane& lane = LaneOf(message.from, lane_index);
  (lane.first < 0 ? lane.first : waiting_[lane.last].next) = slot;
  lane.last = slot;
  if (hardware_.shared_cores == 0) {
    return OnHandedOver(message.from, lane_index);
  }
  if (lane.not_begun < 0) lane.not_begun = slot;
  HandOver(message.from, lane_index);
}

void Network::HandOver(int node, int lane_index) {
  Lane& lane = nodes_[node].lanes[lane_index];
  while (lane.not_begun >= 0 && lane.unsent_bytes < kSocketBytes) {
    const Message& message = waiting_[lane.not_begun].message;
    lane.unsent_bytes += message.bytes;
    const double work = message.fan_out * nodes_[node].count *
                        (message.wakes * hardware_.cpu_s_per_message +
                         message.bytes * hardware_.cpu_s_per_byte);
    cores_until_ = std::max(cores_until_, now_) + work / hardware_.shared_cores;
    Add(cores_until_, Kind::kHandedOver, message, lane_index);
    lane.not_begun = waiting_[lane.not_begun].next;
  }
}

void Network::OnHandedOver(int node_index, int lane_index) {
  Node& node = nodes_[node_index];
  Lane& lane = node.lanes[lane_index];
  if (lane.num_handed_over++ > 0) return;
  if (lane.weight == 0) lane.weight = DrawWeight();
  // Time without anything to send gives no right to more turns.
  if (!hardware_.fair_flows) {
    lane.next_start_tag = std::max(lane.next_start_tag, node.virtual_time);
  }
  node.backlogged.push_back({lane.next_start_tag, lane_index});
  StartNext(node);
}

double Network::DrawWeight() {
  // Box & Muller (1958).
  const double radius = std::sqrt(-2 * std::log(1 - Uniform(random_())));
  return std::exp(kUnfairness * radius *
                  std::cos(2 * M_PI * Uniform(random_())));
}

int Network::NextLane(Node& node) {
  const auto next =
      std::min_element(node.backlogged.begin(), node.backlogged.end());
  const Backlogged turn = *next;
  node.backlogged.erase(next);
  node.virtual_time = turn.start_tag;
  return turn.lane;
}

// A lane has its turn with one packet of each of its flows, and then the others
// have theirs.
void Network::StartNext(Node& node) {
  if (node.sending) return;
  if (node.backlogged.empty()) {
    node.virtual_time = node.last_finish_tag;
    return;
  }
  const int lane_index = NextLane(node);
  Lane& lane = node.lanes[lane_index];
  const int slot = lane.first;
  Waiting& waiting = waiting_[slot];
  const Message message = waiting.message;
  const double bytes = std::min(waiting.unsent, packet_bytes_);
  waiting.unsent -= bytes;
  lane.unsent_bytes -= bytes;
  lane.next_start_tag += bytes / lane.weight;
  node.last_finish_tag = std::max(node.last_finish_tag, lane.next_start_tag);
  const bool last = waiting.unsent <= 0;
  if (last) {
    lane.first = waiting.next;
    --lane.num_handed_over;
    free_.push_back(slot);
  }
  if (lane.num_handed_over > 0) {
    node.backlogged.push_back({lane.next_start_tag, lane_index});
  }
  node.sending = true;
  node.out_until = std::max(node.out_until, now_ - hardware_.burst_s) +
                   message.fan_out * bytes / hardware_.link_bytes_per_s;
  const double sent = std::max(node.out_until, now_);
  Add(sent, Kind::kSent, message);
  const double arrival = Arrival(message, bytes, sent);
  if (last) Add(arrival, Kind::kArrived, message);
  HandOver(message.from, lane_index);
}

// Packets set out in the order of events, and the latency is the same for all:
// so they come in in that order.
double Network::Arrival(const Message& message, double bytes, double sent) {
  Node& to = nodes_[message.to];
  to.in_until = std::max(to.in_until, now_ - hardware_.burst_s) +
                message.fan_in * bytes / hardware_.link_bytes_per_s;
  return std::max(sent, to.in_until) + hardware_.latency_s;
}

void Network::Run(const Cancellation* cancellation) {
  for (int64_t i = 0; !events_.empty(); ++i) {
    // Not each time: it takes a lock.
    if (cancellation != nullptr && i % kEventsALook == 0 &&
        !cancellation->status().ok()) {
      return;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    switch (event.kind) {
      case Kind::kSent: {
        Node& node = nodes_[event.message.from];
        node.sending = false;
        StartNext(node);
        break;
      }
      case Kind::kHandedOver:
        OnHandedOver(event.message.from, event.lane);
        break;
      case Kind::kArrived:
        owner_.OnMessage(event.message);
        break;
      case Kind::kTimer:
        owner_.OnTimer(event.message);
        break;
    }
  }
}

}  // namespace psring
