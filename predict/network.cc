#include "predict/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace psring {
namespace {

// What TCP hands down at once at most.
constexpr double kPacketBytes = 64 * 1024;

// The standard deviation of the logarithm of a flow's weight. Chosen by eye
// among 0, 0.5, 1 and 1.5, on exchanges of 0.5 to 10 MB by 2, 4 and 6 workers
// over links of 0.1 to 2 Gbit/s: how well those are predicted is no proof of
// it.
constexpr double kUnfairness = 1.0;

}  // namespace

Network::Network(const Hardware& hardware, Owner& owner,
                 std::vector<int> counts, int num_lanes, uint64_t seed)
    : hardware_(hardware), owner_(owner), nodes_(counts.size()), random_(seed) {
  for (size_t i = 0; i < counts.size(); ++i) {
    nodes_[i].count = counts[i];
    nodes_[i].lanes.resize(num_lanes);
    // Its bucket is full.
    nodes_[i].out_until = nodes_[i].in_until = -hardware.burst_s;
  }
}

void Network::Add(double at, Kind kind, const Message& message) {
  events_.push({at, order_++, kind, message});
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
  Node& node = nodes_[message.from];
  Lane& lane = node.lanes[lane_index];
  if (lane.first < 0) {
    lane.first = slot;
    node.turns.push_back(lane_index);
  } else {
    waiting_[lane.last].next = slot;
  }
  lane.last = slot;
  StartNext(node);
}

double Network::Uniform() {
  // 53 bits, by hand: std's distributions differ from library to library.
  return static_cast<double>(random_() >> 11) * 0x1p-53;
}

double Network::DrawWeight() {
  // Box & Muller (1958).
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return std::exp(kUnfairness * radius * std::cos(2 * M_PI * Uniform()));
}

size_t Network::DrawTurn(Node& node) {
  double all = 0;
  for (const int lane_index : node.turns) {
    double& weight = node.lanes[lane_index].weight;
    if (weight == 0) weight = DrawWeight();
    all += weight;
  }
  double place = Uniform() * all;
  size_t turn = 0;
  while (turn + 1 < node.turns.size()) {
    place -= node.lanes[node.turns[turn]].weight;
    if (place < 0) break;
    ++turn;
  }
  return turn;
}

size_t Network::NextTurn(Node& node) {
  if (!hardware_.fair_flows) return DrawTurn(node);
  const auto part = [&](int lane_index) {
    const Lane& lane = node.lanes[lane_index];
    return lane.carried / lane.load;
  };
  const auto least =
      std::min_element(node.turns.begin(), node.turns.end(),
                       [&](int a, int b) { return part(a) < part(b); });
  return static_cast<size_t>(least - node.turns.begin());
}

// A lane has its turn with one packet, and then the others have theirs.
void Network::StartNext(Node& node) {
  if (node.sending || node.turns.empty()) return;
  std::swap(node.turns[0], node.turns[NextTurn(node)]);
  const int lane_index = node.turns.front();
  node.turns.pop_front();
  Lane& lane = node.lanes[lane_index];
  const int slot = lane.first;
  Waiting& waiting = waiting_[slot];
  const Message message = waiting.message;
  const double bytes = std::min(waiting.unsent, kPacketBytes);
  waiting.unsent -= bytes;
  lane.carried += message.fan_out * bytes;
  const bool last = waiting.unsent <= 0;
  if (last) {
    lane.first = waiting.next;
    free_.push_back(slot);
  }
  if (lane.first >= 0) node.turns.push_back(lane_index);
  node.sending = true;
  node.out_until = std::max(node.out_until, now_ - hardware_.burst_s) +
                   message.fan_out * bytes / hardware_.link_bytes_per_s;
  const double sent = std::max(node.out_until, now_);
  Add(sent, Kind::kSent, message);
  const double arrival = Arrival(message, bytes, sent);
  if (last) Add(arrival, Kind::kArrived, message);
}

// Packets set out in the order of events, and the latency is the same for all:
// so they come in in that order.
double Network::Arrival(const Message& message, double bytes, double sent) {
  Node& to = nodes_[message.to];
  to.in_until = std::max(to.in_until, now_ - hardware_.burst_s) +
                message.fan_in * bytes / hardware_.link_bytes_per_s;
  double through = std::max(sent, to.in_until);
  if (hardware_.shared_cores > 0) {
    const double work = bytes * message.fan_out * nodes_[message.from].count *
                        hardware_.cpu_s_per_byte;
    cores_until_ = std::max(cores_until_, now_) + work / hardware_.shared_cores;
    through = std::max(through, cores_until_);
  }
  return through + hardware_.latency_s;
}

// When the shared cores are through with so much for each pair of hosts that
// the message is between, and with all before.
double Network::CoresDone(const Message& message, double work) {
  const int pairs = message.fan_out * nodes_[message.from].count;
  cores_until_ =
      std::max(cores_until_, now_) + work * pairs / hardware_.shared_cores;
  return cores_until_;
}

void Network::OnArrival(const Message& message) {
  if (hardware_.shared_cores == 0 || message.fan_out == 0) {
    return owner_.OnMessage(message);
  }
  Add(CoresDone(message, hardware_.cpu_s_per_message), Kind::kHeard, message);
}

void Network::Run() {
  while (!events_.empty()) {
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
      case Kind::kArrived:
        OnArrival(event.message);
        break;
      case Kind::kHeard:
        owner_.OnMessage(event.message);
        break;
      case Kind::kTimer:
        owner_.OnTimer(event.message);
        break;
    }
  }
}

}  // namespace psring
