#include "lab/predict/ps_simulator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "common/model/layout.h"
#include "common/model/shard_cut.h"
#include "lab/predict/compute.h"
#include "lab/predict/network.h"

namespace psring {
namespace {

// As in ps/ps_exchange: buckets that come closer together wait for the window.
constexpr double kPatienceSeconds = 2e-3;

// A message's kind; a is its shard, b its piece (or bucket), c its worker.
enum Kind {
  kPush,         // arrives at a shard
  kPushTaken,    // the shard's thread has it
  kApplied,      // the shard has applied the piece's sum
  kAnswer,       // arrives at a worker
  kAnswerTaken,  // the worker's thread has it
  kBucketReady,
  kBackwardOver,
};

class PsSimulator : public Network::Owner {
 public:
  PsSimulator(const Hardware& hardware, const Workload& workload,
              const Topology& topology, const std::vector<HostClass>& classes,
              int pieces_at_once, uint64_t seed)
      : hardware_(hardware),
        workload_(workload),
        topology_(topology),
        classes_(classes),
        piece_elements_(kPieceElements * pieces_at_once),
        // At least two, so that one is under way while another is answered.
        window_(pieces_at_once == 1
                    ? kWindowPieces
                    : std::max(2, kWindowPieces / pieces_at_once)),
        early_window_(std::max(2, kEarlyWindowPieces / pieces_at_once)) {
    MakeShards();
    MakeWorkers();
    std::vector<int> counts;
    for (const HostClass& c : classes) counts.push_back(c.count);
    network_ = std::make_unique<Network>(
        hardware, *this, counts, seed, Network::kPacketBytes * pieces_at_once);
    SetLoads();
  }

  double Run(const Cancellation* cancellation) {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
      const std::vector<double>& ready = workers_[w].ready;
      for (int b = 0; b < static_cast<int>(ready.size()); ++b) {
        network_->SetTimer(ready[b], {.kind = kBucketReady, .b = b, .c = w});
      }
      network_->SetTimer(ready.back(), {.kind = kBackwardOver, .c = w});
    }
    network_->Run(cancellation);
    double end = 0;
    for (const Worker& worker : workers_) end = std::max(end, worker.end);
    return end;
  }

  void OnMessage(const Message& message) override {
    if (message.kind == kPush) {
      return After(shards_[message.a].thread,
                   message.fan_in * hardware_.message_s, kPushTaken, message);
    }
    Worker& worker = workers_[message.c];
    if (!worker.listens) return worker.unheard.push_back(message);
    TakeAnswer(message);
  }

  void OnTimer(const Message& what) override {
    switch (what.kind) {
      case kPushTaken:
        return OnPushTaken(what);
      case kApplied:
        return AnswerAll(what.a, what.b);
      case kAnswerTaken:
        return OnAnswerTaken(what);
      case kBucketReady:
        return Submit(what.c, what.b);
      default:
        return Listen(what.c);
    }
  }

 private:
  struct Piece {
    int bucket = 0;
    double bytes = 0;
    int missing = 0;  // classes of workers that have not pushed it
  };
  struct Shard {
    int node = 0;
    int index = 0;  // of its host
    std::vector<Piece> pieces;
    BusyThread thread;
  };
  struct Link {
    int submitted = 0;  // pieces, in the order of the shard's
    int sent = 0;
    int answered = 0;
  };
  struct Worker {
    int node = 0;
    std::vector<double> ready;  // by bucket
    std::vector<Link> links;    // by shard
    std::vector<Message> unheard;
    BusyThread thread;
    bool listens = false;
    double last_submit = -std::numeric_limits<double>::infinity();
    int64_t due = 0;  // answers, until the step's end
    double end = 0;
  };

  // Servers' parts in the order of the hosts; those of a class share theirs
  // evenly.
  void MakeShards() {
    int servers = 0;
    for (const HostClass& host : classes_) servers += host.server * host.count;
    const std::vector<Range> buckets = BucketsOf(workload_.buckets);
    const std::vector<Ranges> parts = CutAmongServers(buckets, servers);
    int first = 0;
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (!classes_[i].server) continue;
      const int count = classes_[i].count;
      std::vector<int64_t> sizes;
      for (const Range& bucket : buckets) {
        double all = 0;
        for (int s = first; s < first + count; ++s) {
          all += static_cast<double>(SizeWithin(parts[s], bucket));
        }
        sizes.push_back(std::llround(all / count));
      }
      first += count;
      AddShards(static_cast<int>(i), BucketsOf(sizes));
    }
  }

  // Of each server of a class, which has these parts of the buckets.
  void AddShards(int node, const std::vector<Range>& buckets) {
    const std::vector<Ranges> cut =
        CutAmongThreads({{0, buckets.front().end}}, buckets, hardware_.shards);
    for (int t = 0; t < hardware_.shards && !cut[t].empty(); ++t) {
      Shard shard{node, t, {}, {}};
      for (size_t b = 0; b < buckets.size(); ++b) {
        AddPieces(static_cast<int>(b),
                  static_cast<double>(SizeWithin(cut[t], buckets[b])), shard);
      }
      shards_.push_back(std::move(shard));
    }
  }

  void AddPieces(int bucket, double elements, Shard& shard) const {
    const auto most = static_cast<double>(piece_elements_);
    for (double left = elements; left >= 0.5; left -= most) {
      shard.pieces.push_back({bucket, std::min(left, most) * sizeof(float), 0});
    }
  }

  void MakeWorkers() {
    int64_t pieces = 0;
    for (const Shard& shard : shards_) {
      pieces += static_cast<int64_t>(shard.pieces.size());
    }
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (!classes_[i].worker) continue;
      Worker& worker = workers_.emplace_back();
      worker.node = static_cast<int>(i);
      worker.ready = ReadyTimes(workload_, classes_[i].compute_s);
      worker.links.resize(shards_.size());
      worker.due = pieces;
    }
    for (Shard& shard : shards_) {
      for (Piece& piece : shard.pieces) {
        piece.missing = static_cast<int>(workers_.size());
      }
    }
  }

  void SetLoads() {
    for (int s = 0; s < static_cast<int>(shards_.size()); ++s) {
      double bytes = 0;
      for (const Piece& piece : shards_[s].pieces) bytes += piece.bytes;
      for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
        const Message push = Between(workers_[w].node, shards_[s].node);
        network_->SetLoad(push.from, s, bytes);
        network_->SetLoad(push.to, AnswerLane(s, w), bytes);
      }
    }
  }

  // A lane of the shard's host; a worker's pushes have the lanes before.
  int AnswerLane(int s, int w) const {
    return static_cast<int>(shards_.size() +
                            shards_[s].index * workers_.size() + w);
  }

  // `what` happens when the thread has done so much more.
  void After(BusyThread& thread, double work, Kind kind, Message what) {
    what.kind = kind;
    network_->SetTimer(thread.Do(network_->now(), work), what);
  }

  void Submit(int w, int bucket) {
    Worker& worker = workers_[w];
    const bool computing =
        network_->now() - worker.last_submit > kPatienceSeconds;
    worker.last_submit = network_->now();
    for (int s = 0; s < static_cast<int>(shards_.size()); ++s) {
      Link& link = worker.links[s];
      if (computing) SendPushes(w, s, early_window_);
      const std::vector<Piece>& pieces = shards_[s].pieces;
      while (link.submitted < static_cast<int>(pieces.size()) &&
             pieces[link.submitted].bucket == bucket) {
        ++link.submitted;
      }
      SendPushes(w, s, window_);
    }
  }

  void SendPushes(int w, int s, int window) {
    Worker& worker = workers_[w];
    Link& link = worker.links[s];
    const Shard& shard = shards_[s];
    while (link.sent < link.submitted && link.sent - link.answered < window) {
      Message push = Between(worker.node, shard.node);
      push.bytes = shard.pieces[link.sent].bytes;
      push.kind = kPush;
      push.a = s;
      push.b = link.sent++;
      push.c = w;
      network_->Send(push, s);
    }
  }

  // From every host of one class to every one of another; a host's own server
  // shares its memory.
  Message Between(int from, int to) const {
    const int own = from == to ? 1 : 0;
    return {.from = from,
            .to = to,
            .fan_out = network_->count(to) - own,
            .fan_in = network_->count(from) - own};
  }

  void OnPushTaken(const Message& push) {
    Shard& shard = shards_[push.a];
    Piece& piece = shard.pieces[push.b];
    if (--piece.missing > 0) return;
    const double work =
        topology_.workers *
        (piece.bytes / hardware_.update_bytes_per_s + hardware_.message_s);
    After(shard.thread, work, kApplied, push);
  }

  void AnswerAll(int s, int piece) {
    const Shard& shard = shards_[s];
    const int num_workers = static_cast<int>(workers_.size());
    for (int w = 0; w < num_workers; ++w) {
      Message answer = Between(shard.node, workers_[w].node);
      answer.bytes = shard.pieces[piece].bytes;
      answer.kind = kAnswer;
      answer.a = s;
      answer.b = piece;
      answer.c = w;
      network_->Send(answer, AnswerLane(s, w));
    }
  }

  void Listen(int w) {
    Worker& worker = workers_[w];
    worker.listens = true;
    for (const Message& answer : std::exchange(worker.unheard, {})) {
      TakeAnswer(answer);
    }
    for (int s = 0; s < static_cast<int>(shards_.size()); ++s) {
      SendPushes(w, s, window_);
    }
  }

  void TakeAnswer(const Message& answer) {
    const double each =
        hardware_.message_s + answer.bytes / hardware_.update_bytes_per_s;
    After(workers_[answer.c].thread, answer.fan_in * each, kAnswerTaken,
          answer);
  }

  void OnAnswerTaken(const Message& answer) {
    Worker& worker = workers_[answer.c];
    ++worker.links[answer.a].answered;
    if (--worker.due == 0) worker.end = network_->now();
    SendPushes(answer.c, answer.a, window_);
  }

  const Hardware hardware_;
  const Workload& workload_;
  const Topology& topology_;
  const std::vector<HostClass>& classes_;
  const int64_t piece_elements_;
  const int window_;
  const int early_window_;
  std::vector<Shard> shards_;
  std::vector<Worker> workers_;  // classes of them
  std::unique_ptr<Network> network_;
};

}  // namespace

double SimulatePs(const Hardware& hardware, const Workload& workload,
                  const Topology& topology,
                  const std::vector<HostClass>& classes, int pieces_at_once,
                  uint64_t seed, const Cancellation* cancellation) {
  return PsSimulator(hardware, workload, topology, classes, pieces_at_once,
                     seed)
      .Run(cancellation);
}

int64_t PsMessages(const Workload& workload, const Hardware& hardware,
                   int workers, int servers, int pieces_at_once) {
  const auto elements = static_cast<double>(NumElements(workload));
  const double whole = std::ceil(
      elements / static_cast<double>(kPieceElements) / pieces_at_once);
  const auto buckets = static_cast<double>(workload.buckets.size());
  return static_cast<int64_t>(
      2.0 * workers * std::max(whole, servers * (buckets + hardware.shards)));
}

}  // namespace psring
