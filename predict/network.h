// Hosts, their links and the time between them, event by event.
//
// A message goes out on its sender's link, whose flows take turns packet by
// packet, and comes in on its receiver's, in the order in which packets set
// out. So flows share a link, and many senders that of their receiver: incast.
// A packet comes in while it goes out: it is there when the slower of both
// links has passed it and the latency is over. What waits for a busy link waits
// without loss. TCP's flows share a link
// unevenly for as long as a step takes: whose turn it is is drawn at random,
// with a weight that each flow draws once, so that of several flows that are
// awaited together one is always late. fair_flows: it is the one's that has
// carried the least part of what it has to, which is what formulas assume.
//
// A node can stand for `count` equal hosts that do the same at the same
// instants: its messages then say to how many hosts each of them sends so many
// bytes (fan_out), and from how many each receiver gets as many (fan_in).
//
// One thread's own; no clock, no socket.
#ifndef PSRING_PREDICT_NETWORK_H_
#define PSRING_PREDICT_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <queue>
#include <random>
#include <vector>

#include "predict/scenario.h"

namespace psring {

struct Message {
  int from = 0;
  int to = 0;
  double bytes = 0;
  int fan_out = 1;  // 0: to its own host, over no link
  int fan_in = 1;
  // The owner's: what it is.
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

  // Both outlive it. Every node has `num_lanes` flows.
  Network(const Hardware& hardware, Owner& owner, std::vector<int> counts,
          int num_lanes, uint64_t seed);

  double now() const { return now_; }
  int count(int node) const { return nodes_[node].count; }

  // What a lane has to carry in all, for fair_flows.
  void SetLoad(int node, int lane, double bytes) {
    nodes_[node].lanes[lane].load = bytes;
  }

  // Behind what the sender's `lane` still has to send.
  void Send(const Message& message, int lane);
  // `what` comes back at that time.
  void SetTimer(double at, const Message& what);

  // Until nothing is left to happen.
  void Run();

 private:
  struct Waiting {
    Message message;
    double unsent = 0;
    int next = -1;
  };
  struct Lane {
    int first = -1;  // in waiting_
    int last = -1;
    double weight = 0;  // of its turns; 0: not drawn yet
    double load = 1;
    double carried = 0;
  };
  struct Node {
    int count = 1;
    double out_until = 0;
    double in_until = 0;
    bool sending = false;
    std::vector<Lane> lanes;
    std::deque<int> turns;  // of the lanes that have something to send
  };
  enum class Kind { kSent, kArrived, kHeard, kTimer };
  struct Event {
    double at = 0;
    int64_t order = 0;  // of equal times
    Kind kind = Kind::kTimer;
    Message message;

    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void Add(double at, Kind kind, const Message& message);
  void StartNext(Node& node);
  // In node.turns.
  size_t NextTurn(Node& node);
  size_t DrawTurn(Node& node);
  double DrawWeight();
  double Uniform();
  // When so many bytes of it have arrived, that its sender is through with at
  // `sent`.
  double Arrival(const Message& message, double bytes, double sent);
  void OnArrival(const Message& message);
  double CoresDone(const Message& message, double work);

  const Hardware hardware_;
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

#endif  // PSRING_PREDICT_NETWORK_H_
