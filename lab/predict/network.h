// Hosts, their links and the time between them, event by event.
//
// A message goes out on its sender's link, whose flows take turns packet by
// packet, and comes in on its receiver's, in the order in which packets set
// out. So flows share a link, and many senders that of their receiver: incast.
// A packet comes in while it goes out: it is there when the slower of both
// links has passed it and the latency is over. What waits for a busy link waits
// without loss.
//
// TCP's flows share a link unevenly for as long as a step takes, so that of
// several that are awaited together one is always late: each draws a weight
// once, and they take turns by start-time fair queueing (Goyal, Vin & Cheng,
// 1996). fair_flows: whose turn it is has carried the least part of what it has
// to, which is what formulas assume.
//
// Hosts that share cores hand messages over to their sockets one after another:
// a message costs its own and its bytes' time on the cores before its first
// packet leaves, until a socket's buffer is full of what waits for the link.
//
// A node can stand for `count` equal hosts that do the same at the same
// instants: its messages then say to how many hosts each of them sends so many
// bytes (fan_out), and from how many each receiver gets as many (fan_in).
//
// One thread's own; no clock, no socket.
#ifndef PSRING_LAB_PREDICT_NETWORK_H_
#define PSRING_LAB_PREDICT_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <queue>
#include <random>
#include <vector>

#include "common/net/cancellation.h"
#include "lab/predict/scenario.h"

namespace psring {

struct Message {
  int from = 0;
  int to = 0;
  double bytes = 0;
  int fan_out = 1;  // 0: to its own host, over no link
  int fan_in = 1;
  // Threads that wake for it, each of them for what a message costs the cores.
  // 1 where those that handle messages have several at a time.
  double wakes = 1;
  // What it is, for its owner.
  int kind = 0;
  int a = 0;
  int b = 0;
  int c = 0;
};

class Network {
 public:
  // Does what happens. Both may send and set timers.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnMessage(const Message& message) = 0;
    virtual void OnTimer(const Message& what) = 0;
  };

  // What TCP hands down at once at most.
  static constexpr double kPacketBytes = 64 * 1024;

  // `owner` outlives it. One node for each of `counts`. Longer packets take
  // less time to simulate.
  Network(const Hardware& hardware, Owner& owner,
          const std::vector<int>& counts, uint64_t seed,
          double packet_bytes = kPacketBytes);

  double now() const { return now_; }
  int count(int node) const { return nodes_[node].count; }

  // What each flow of a lane has to carry in all. Needed, before it sends,
  // where flows are fair and a node has several.
  void SetLoad(int node, int lane, double bytes) {
    if (hardware_.fair_flows) LaneOf(node, lane).weight = bytes;
  }

  // Behind what the sender's `lane` still has to send.
  void Send(const Message& message, int lane);
  // `what` comes back at that time.
  void SetTimer(double at, const Message& what);

  // Runs until nothing is left to happen, or `cancellation`, if any, is
  // cancelled.
  void Run(const Cancellation* cancellation = nullptr);

 private:
  struct Waiting {
    Message message;
    double unsent = 0;
    int next = -1;
  };
  // Its messages in order, in waiting_: those that are handed over, those that
  // the cores have begun with, and the others.
  struct Lane {
    int first = -1;
    int last = -1;
    int not_begun = -1;       // the first that the cores have not begun with
    int num_handed_over = 0;  // messages of which something is to be sent
    double unsent_bytes = 0;  // that the cores have begun with, if shared
    double weight = 0;        // 0: not drawn yet; the load where flows are fair
    double next_start_tag = 0;
  };
  struct Backlogged {
    double start_tag = 0;
    int lane = 0;

    bool operator<(const Backlogged& other) const {
      return start_tag < other.start_tag;
    }
  };
  struct Node {
    int count = 1;
    double out_until = 0;
    double in_until = 0;
    bool sending = false;
    std::vector<Lane> lanes;
    std::vector<Backlogged> backlogged;  // the lanes with something to send
    double virtual_time = 0;     // the start tag of the packet being sent
    double last_finish_tag = 0;  // of all packets
  };
  enum class Kind { kHandedOver, kSent, kArrived, kTimer };
  struct Event {
    double at = 0;
    int64_t order = 0;  // of equal times
    Kind kind = Kind::kTimer;
    Message message;
    int lane = 0;

    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  // There from now on.
  Lane& LaneOf(int node, int lane);
  void Add(double at, Kind kind, const Message& message, int lane = 0);
  // Gives the cores what the lane's socket has room for.
  void HandOver(int node, int lane);
  void OnHandedOver(int node, int lane);
  void StartNext(Node& node);
  // The lane whose turn it is; takes it out of node.backlogged.
  int NextLane(Node& node);
  double DrawWeight();
  // When so many bytes of it have arrived, that its sender is through with at
  // `sent`.
  double Arrival(const Message& message, double bytes, double sent);

  const Hardware hardware_;
  const double packet_bytes_;
  Owner& owner_;
  std::vector<Node> nodes_;
  std::vector<Waiting> waiting_;
  std::vector<int> free_;  // in waiting_
  std::priority_queue<Event> events_;
  std::mt19937_64 random_;
  double now_ = 0;
  double cores_until_ = 0;
  int64_t order_ = 0;
};

// What a thread does, one thing after the other.
class BusyThread {
 public:
  // When `work` seconds, begun at `now` at the earliest, are done.
  double Do(double now, double work) {
    until_ = (until_ > now ? until_ : now) + work;
    return until_;
  }

 private:
  double until_ = 0;
};

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_NETWORK_H_
