#include "lab/predict/ring_simulator.h"

#include <algorithm>
#include <cstddef>

#include "common/model/layout.h"
#include "lab/predict/compute.h"
#include "lab/predict/network.h"
#include "ring/routes.h"

namespace psring {
namespace {

AllReduceWay WayOfBucket(int workers, int64_t elements) {
  return WayOf(workers, workers, elements, DirectLimits{});
}

// Of how many ranks the values are that a message of round `round` carries,
// from 0, where everybody gets all.
int RanksInRound(int workers, int round) {
  return std::min(1 << round, workers - (1 << round));
}

// A message by itself wakes its sender's I/O thread, its receiver's, and the
// thread that sums.
constexpr double kWakesOfHop = 3;

// In a message a is its bucket, b the rank where its slice starts (of a ring),
// c its hop or round, from 1. A timer with a hop: its receiver is through with
// that message; without one: a bucket of that rank is ready.
class RingSimulator : public Network::Owner {
 public:
  RingSimulator(const Hardware& hardware, const Workload& workload, int workers,
                const std::vector<double>& compute_s)
      : hardware_(hardware),
        workload_(workload),
        workers_(workers),
        symmetric_(compute_s.size() == 1),
        hops_(2 * (workers - 1)),
        network_(hardware, *this,
                 symmetric_ ? std::vector<int>{workers}
                            : std::vector<int>(workers, 1),
                 /*seed=*/0) {
    for (const double seconds : compute_s) {
      ranks_.emplace_back().ready = ReadyTimes(workload, seconds);
      ranks_.back().early.resize(workload.buckets.size());
    }
  }

  double Run(const Cancellation* cancellation) {
    const int nodes = static_cast<int>(ranks_.size());
    for (int rank = 0; rank < nodes; ++rank) {
      for (const double ready : ranks_[rank].ready) {
        network_.SetTimer(ready, {.from = rank, .to = rank});
      }
    }
    network_.Run(cancellation);
    double end = 0;
    for (const Rank& rank : ranks_) end = std::max(end, rank.end);
    return end;
  }

  void OnMessage(const Message& message) override {
    Rank& rank = ranks_[message.to];
    if (rank.running && message.a == rank.bucket) {
      Handle(message);
    } else {
      rank.early[message.a].push_back(message);
    }
  }

  void OnTimer(const Message& what) override {
    if (what.c == 0) return Begin(what.to);
    OnHandled(what);
  }

 private:
  struct Rank {
    std::vector<double> ready;  // by bucket
    std::vector<std::vector<Message>> early;
    BusyThread thread;
    int bucket = 0;  // under way, or the next
    bool running = false;
    AllReduceWay way = AllReduceWay::kRing;  // of that under way
    int64_t due = 0;
    double end = 0;
    uint32_t rounds = 0;  // that are through, a bit each: everybody's values
    int next_round = 0;
    int values_due = 0;  // of the slice that it owns
  };

  // Bytes of a slice, in segments.
  std::vector<double> Segments(int bucket, int slice) const {
    const int64_t elements = workload_.buckets[bucket];
    double bytes =
        symmetric_ ? static_cast<double>(elements) / workers_
                   : static_cast<double>(
                         NearEqualPart({0, elements}, workers_, slice).size());
    bytes *= sizeof(float);
    std::vector<double> segments;
    constexpr double kSegmentBytes = kSegmentElements * sizeof(float);
    for (; bytes > 0; bytes -= kSegmentBytes) {
      segments.push_back(std::min(bytes, kSegmentBytes));
    }
    return segments;
  }

  // Starts the rank's comm thread where it is idle and the next bucket ready.
  void Begin(int index) {
    Rank& rank = ranks_[index];
    if (rank.running || rank.bucket == static_cast<int>(rank.ready.size()) ||
        rank.ready[rank.bucket] > network_.now()) {
      return;
    }
    rank.running = true;
    rank.way = WayOfBucket(workers_, workload_.buckets[rank.bucket]);
    switch (rank.way) {
      case AllReduceWay::kRing:
        BeginRing(index);
        break;
      case AllReduceWay::kOwners:
        BeginOwners(index);
        break;
      case AllReduceWay::kEverybody:
        rank.rounds = 0;
        rank.next_round = 0;
        rank.due = NumRounds(workers_);
        SendRounds(index);
        break;
    }
    std::vector<Message> early;
    early.swap(rank.early[rank.bucket]);
    for (const Message& message : early) Handle(message);
    if (rank.due == 0) End(index);
  }

  void BeginRing(int index) {
    Rank& rank = ranks_[index];
    rank.due = Due(index, rank.bucket);
    for (const double bytes : Segments(rank.bucket, index)) {
      SendOn({.from = index, .bytes = bytes, .a = rank.bucket, .b = index});
    }
  }

  void BeginOwners(int index) {
    Rank& rank = ranks_[index];
    rank.values_due = symmetric_ ? 1 : workers_ - 1;
    rank.due = 2 * rank.values_due;
    SendStraight(index, /*hop=*/1);
  }

  // To all others: their slices on hop 1, the mean of its own on hop 2.
  void SendStraight(int index, int hop) {
    const int bucket = ranks_[index].bucket;
    const int receivers = symmetric_ ? 1 : workers_ - 1;
    const int hosts = symmetric_ ? workers_ - 1 : 1;  // each of them is
    for (int i = 1; i <= receivers; ++i) {
      const int to = symmetric_ ? 0 : (index + i) % workers_;
      const int slice = hop == 1 ? to : index;
      double bytes = 0;
      for (const double segment : Segments(bucket, slice)) bytes += segment;
      // Those that leave together wake threads once.
      network_.Send({.from = index,
                     .to = to,
                     .bytes = bytes,
                     .fan_out = hosts,
                     .fan_in = hosts,
                     .wakes = 1 + (i == 1 ? (kWakesOfHop - 1) / hosts : 0),
                     .a = bucket,
                     .b = slice,
                     .c = hop},
                    /*lane=*/to);
    }
  }

  // Those whose values the rank has.
  void SendRounds(int index) {
    Rank& rank = ranks_[index];
    const double bytes =
        static_cast<double>(workload_.buckets[rank.bucket]) * sizeof(float);
    for (; rank.next_round < NumRounds(workers_); ++rank.next_round) {
      const int round = rank.next_round;
      const uint32_t before = (uint32_t{1} << round) - 1;
      if ((rank.rounds & before) != before) return;
      const int to =
          symmetric_ ? 0 : (index - (1 << round) + workers_) % workers_;
      network_.Send({.from = index,
                     .to = to,
                     .bytes = bytes * RanksInRound(workers_, round),
                     .wakes = kWakesOfHop,
                     .a = rank.bucket,
                     .b = index,
                     .c = round + 1},
                    /*lane=*/round);
    }
  }

  // Segments that come to it: those of every slice on every hop but the one
  // that starts here.
  int64_t Due(int index, int bucket) const {
    if (symmetric_) {
      return hops_ * static_cast<int64_t>(Segments(bucket, 0).size());
    }
    int64_t due = 0;
    for (int slice = 0; slice < workers_; ++slice) {
      // Hop h of the slice that starts at rank s ends at rank s + h.
      const int distance = (index - slice + workers_) % workers_;
      const int visits = distance > 0 && distance + workers_ <= hops_ ? 2 : 1;
      due += visits * static_cast<int64_t>(Segments(bucket, slice).size());
    }
    return due;
  }

  // The next hop of a segment that its sender has.
  void SendOn(Message message) {
    message.to = symmetric_ ? 0 : (message.from + 1) % workers_;
    ++message.c;
    network_.Send(message, 0);
  }

  // The message after which what it is part of can be updated.
  bool Completes(const Message& message) const {
    switch (ranks_[message.to].way) {
      case AllReduceWay::kRing:
        return message.c == workers_ - 1;
      case AllReduceWay::kOwners:
        return message.c == 1;
      case AllReduceWay::kEverybody:
        return message.c == NumRounds(workers_);
    }
    return false;
  }

  void Handle(const Message& message) {
    Rank& rank = ranks_[message.to];
    const bool updates = workload_.updates && Completes(message);
    const double work =
        message.fan_in * hardware_.message_s +
        (updates ? 2 : 1) * message.bytes / hardware_.update_bytes_per_s;
    network_.SetTimer(rank.thread.Do(network_.now(), work), message);
  }

  void OnHandled(Message message) {
    const int index = message.to;
    Rank& rank = ranks_[index];
    switch (rank.way) {
      case AllReduceWay::kRing:
        message.from = index;
        if (message.c < hops_) SendOn(message);
        break;
      case AllReduceWay::kOwners:
        if (message.c == 1 && --rank.values_due == 0) {
          SendStraight(index, /*hop=*/2);
        }
        break;
      case AllReduceWay::kEverybody:
        rank.rounds |= uint32_t{1} << (message.c - 1);
        SendRounds(index);
        break;
    }
    if (--rank.due == 0) End(index);
  }

  void End(int index) {
    Rank& rank = ranks_[index];
    rank.running = false;
    if (workload_.updates && workers_ == 1) {
      const double bytes =
          static_cast<double>(workload_.buckets[rank.bucket]) * sizeof(float);
      rank.end =
          rank.thread.Do(network_.now(), bytes / hardware_.update_bytes_per_s);
    }
    rank.end = std::max({rank.end, network_.now(), rank.ready.back()});
    ++rank.bucket;
    Begin(index);
  }

  const Hardware hardware_;
  const Workload& workload_;
  const int workers_;
  const bool symmetric_;
  const int hops_;
  Network network_;
  std::vector<Rank> ranks_;
};

}  // namespace

double SimulateRing(const Hardware& hardware, const Workload& workload,
                    int workers, const std::vector<double>& compute_s,
                    const Cancellation* cancellation) {
  return RingSimulator(hardware, workload, workers, compute_s)
      .Run(cancellation);
}

int64_t RingMessages(const Workload& workload, int workers) {
  const int64_t n = workers;
  int64_t messages = 0;
  for (const int64_t elements : workload.buckets) {
    const int64_t slice = (elements + n - 1) / n;
    switch (WayOfBucket(workers, elements)) {
      case AllReduceWay::kRing:
        messages += n * 2 * (n - 1) *
                    ((slice + kSegmentElements - 1) / kSegmentElements);
        break;
      case AllReduceWay::kOwners:
        messages += n * 2 * (n - 1);
        break;
      case AllReduceWay::kEverybody:
        messages += n * NumRounds(workers);
        break;
    }
  }
  return messages;
}

}  // namespace psring
