#include "lab/predict/ring_simulator.h"

#include <algorithm>
#include <cstddef>

#include "common/model/layout.h"
#include "lab/predict/compute.h"
#include "lab/predict/network.h"

namespace psring {
namespace {

// In a message a is its bucket, b the rank where its slice starts, c its hop,
// from 1. A timer with a hop: its receiver is through with that message;
// without one: a bucket of that rank is ready.
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

  double Run() {
    const int nodes = static_cast<int>(ranks_.size());
    for (int rank = 0; rank < nodes; ++rank) {
      for (const double ready : ranks_[rank].ready) {
        network_.SetTimer(ready, {.from = rank, .to = rank});
      }
    }
    network_.Run();
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
    int64_t due = 0;
    double end = 0;
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
    rank.due = Due(index, rank.bucket);
    for (const double bytes : Segments(rank.bucket, index)) {
      SendOn({.from = index, .bytes = bytes, .a = rank.bucket, .b = index});
    }
    std::vector<Message> early;
    early.swap(rank.early[rank.bucket]);
    for (const Message& message : early) Handle(message);
    if (rank.due == 0) End(index);
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

  // Where a slice becomes complete it is updated, too.
  void Handle(const Message& message) {
    const bool updates = workload_.updates && message.c == workers_ - 1;
    const double work = hardware_.message_s + (updates ? 2 : 1) *
                                                  message.bytes /
                                                  hardware_.update_bytes_per_s;
    network_.SetTimer(ranks_[message.to].thread.Do(network_.now(), work),
                      message);
  }

  void OnHandled(Message message) {
    const int index = message.to;
    message.from = index;
    if (message.c < hops_) SendOn(message);
    if (--ranks_[index].due == 0) End(index);
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
                    int workers, const std::vector<double>& compute_s) {
  return RingSimulator(hardware, workload, workers, compute_s).Run();
}

int64_t RingMessages(const Workload& workload, int workers) {
  int64_t messages = 0;
  for (const int64_t elements : workload.buckets) {
    const int64_t slice = (elements + workers - 1) / workers;
    messages += (slice + kSegmentElements - 1) / kSegmentElements;
  }
  return messages * workers * 2 * (workers - 1);
}

}  // namespace psring
