// A step through ps-lite's servers: every worker pushes its gradients in keys
// of 4 MB, the servers answer when they have summed those of all workers, and
// every worker pulls the sums. (psring's servers apply an optimizer besides.)
// Measured as lab/bench/pushpull_operation.cc measures psring's: new inputs
// before every batch of operations, a common start, every element of the result
// compared. A worker writes OUT/rank-RANK.json, a server OUT/server-RANK.json.
//
// Which of them a process is, and where the others are, is in ps-lite's own
// variables: DMLC_ROLE and the others.
//
// usage: pslite_pushpull SIZE_BYTES ITERATIONS WARMUP OUT BATCH
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace {

const int64_t kKeyElements = 4 * 1000 * 1000 / 4;

struct Arguments {
  int64_t size;  // in elements
  int64_t iterations, warmup;
  std::string out;
  int64_t batch;
};

void Fail(const std::string& what) {
  fprintf(stderr, "pslite_pushpull: %s\n", what.c_str());
  _exit(1);  // its threads would make exit() wait
}

double Read(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void Sleep(double seconds) {
  const timespec time = {(time_t)seconds,
                         (long)((seconds - (double)(time_t)seconds) * 1e9)};
  if (seconds > 0) nanosleep(&time, NULL);
}

// As lab/bench/pattern.h.
float Pattern(float factor, int64_t iteration, int64_t element) {
  const uint32_t hash =
      (uint32_t)element * 2654435761u + (uint32_t)iteration * 40503u;
  return factor * (float)((int)(hash >> 25) + 1);
}

FILE* Create(const std::string& path) {
  FILE* file = fopen(path.c_str(), "w");
  if (file == NULL) Fail("cannot write " + path);
  return file;
}

// ---- A server ----

// Answers pushes when all workers' have come, as MXNet's synchronous store
// does. Called on one thread.
class Sums {
 public:
  explicit Sums(const Arguments& arguments) : arguments_(arguments) {}

  void Handle(const ps::KVMeta& meta, const ps::KVPairs<float>& data,
              ps::KVServer<float>* server) {
    Sum& sum = sums_[data.keys[0]];
    if (!meta.push) {
      ps::KVPairs<float> answer;
      answer.keys = data.keys;
      answer.vals = sum.whole;
      answer.lens.push_back((int)sum.whole.size());
      server->Response(meta, answer);
      return;
    }
    if (sum.waiting.empty()) {
      if (++sum.steps == arguments_.warmup + 1 && cpu_start_ == 0) {
        cpu_start_ = Read(CLOCK_PROCESS_CPUTIME_ID);
      }
      // Copied, since the message's memory is its own. The vector is reused:
      // the sums of two steps take turns, as workers may still be reading the
      // last.
      sum.partial.resize(data.vals.size());
      std::copy(data.vals.begin(), data.vals.end(), sum.partial.begin());
    } else {
      float* to = sum.partial.data();
      const float* from = data.vals.data();
      const size_t size = std::min(sum.partial.size(), data.vals.size());
      for (size_t i = 0; i < size; ++i) to[i] += from[i];
    }
    sum.waiting.push_back(meta);
    if ((int)sum.waiting.size() < ps::NumWorkers()) return;
    std::swap(sum.partial, sum.whole);
    for (const ps::KVMeta& worker : sum.waiting) {
      server->Response(worker, ps::KVPairs<float>());
    }
    sum.waiting.clear();
  }

  void Write(int rank) const {
    FILE* file =
        Create(arguments_.out + "/server-" + std::to_string(rank) + ".json");
    fprintf(file, "{\"cpu_seconds\":%.9f,\"peak_bytes\":%lld}\n",
            cpu_start_ == 0 ? 0.0 : Read(CLOCK_PROCESS_CPUTIME_ID) - cpu_start_,
            PeakBytes());
    if (fclose(file) != 0) Fail("cannot write a server's figures");
  }

 private:
  struct Sum {
    ps::SArray<float> partial, whole;
    std::vector<ps::KVMeta> waiting;
    int64_t steps = 0;
  };

  static long long PeakBytes() {
    FILE* file = fopen("/proc/self/status", "r");
    char line[256];
    long long kilobytes = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
      if (sscanf(line, "VmHWM: %lld", &kilobytes) == 1) break;
    }
    if (file != NULL) fclose(file);
    return kilobytes * 1024;
  }

  const Arguments arguments_;
  std::unordered_map<ps::Key, Sum> sums_;
  double cpu_start_ = 0;
};

void Serve(const Arguments& arguments) {
  Sums sums(arguments);
  ps::KVServer<float> server(0);
  server.set_request_handle(
      [&sums](const ps::KVMeta& meta, const ps::KVPairs<float>& data,
              ps::KVServer<float>* self) { sums.Handle(meta, data, self); });
  const int rank = ps::MyRank();
  ps::Finalize(0, true);  // blocks for the workers
  sums.Write(rank);
}

// ---- A worker ----

class Worker {
 public:
  explicit Worker(const Arguments& arguments)
      : arguments_(arguments),
        rank_(ps::MyRank()),
        gradients_((size_t)arguments.size),
        sums_((size_t)arguments.size),
        starts_(MapStarts()),
        kv_(0, 0) {
    const auto& ranges = ps::Postoffice::Get()->GetServerKeyRanges();
    for (int64_t begin = 0; begin < arguments_.size; begin += kKeyElements) {
      const size_t k = slices_.size();
      const int64_t size = std::min(kKeyElements, arguments_.size - begin);
      slices_.push_back(Slice());
      Slice& slice = slices_.back();
      slice.keys.push_back(ranges[k % ranges.size()].begin() + k);
      slice.lens.push_back((int)size);
      slice.gradients = ps::SArray<float>(gradients_.data() + begin, size);
      slice.sums = ps::SArray<float>(sums_.data() + begin, size);
    }
  }

  void Measure() {
    const int64_t all = arguments_.warmup + arguments_.iterations;
    int64_t runs = 0;
    for (int64_t i = 0; i < all; i += runs) {
      const int64_t end = i < arguments_.warmup ? arguments_.warmup : all;
      runs = std::min(arguments_.batch, end - i);
      Prepare(i);
      const double start = AwaitStart();
      double before = start;
      double cpu_before = Read(CLOCK_PROCESS_CPUTIME_ID);
      for (int64_t run = 0; run < runs; ++run) {
        Run();
        const double now = Read(CLOCK_MONOTONIC);
        const double cpu_now = Read(CLOCK_PROCESS_CPUTIME_ID);
        if (i >= arguments_.warmup) {
          seconds_.push_back(now - before);
          cpu_seconds_.push_back(cpu_now - cpu_before);
        }
        before = now;
        cpu_before = cpu_now;
      }
      // What a rank does next takes a core from those that are still at it.
      Sleep(before - start);
      // Nor does anybody verify before all are done.
      Barrier();
      Verify(i);
    }
  }

  void Write() const {
    FILE* file =
        Create(arguments_.out + "/rank-" + std::to_string(rank_) + ".json");
    fprintf(file, "{\"rank\":%d", rank_);
    WriteList(file, "seconds", seconds_);
    WriteList(file, "cpu_seconds", cpu_seconds_);
    fprintf(file, "}\n");
    if (fclose(file) != 0) Fail("cannot write a rank's times");
  }

 private:
  struct Slice {
    ps::SArray<ps::Key> keys;
    ps::SArray<int> lens;
    ps::SArray<float> gradients, sums;
  };

  static void WriteList(FILE* file, const char* name,
                        const std::vector<double>& values) {
    fprintf(file, ",\"%s\":[", name);
    for (size_t i = 0; i < values.size(); ++i) {
      fprintf(file, "%s%.9f", i == 0 ? "" : ",", values[i]);
    }
    fprintf(file, "]");
  }

  static void Barrier() { ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup); }

  // A double of each worker, in memory that all share.
  double* MapStarts() const {
    const std::string path = arguments_.out + "/starts";
    const size_t bytes = sizeof(double) * (size_t)ps::NumWorkers();
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
      Fail("cannot write " + path);
    }
    void* memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) Fail("cannot map " + path);
    close(file);
    return static_cast<double*>(memory);
  }

  // As RankJob::AwaitStart. Nobody writes for the next start before the barrier
  // behind this operation.
  double AwaitStart() {
    starts_[rank_] = Read(CLOCK_MONOTONIC);
    Barrier();
    double start = 0;
    for (int r = 0; r < ps::NumWorkers(); ++r) {
      start = std::max(start, starts_[r]);
    }
    start += 2e-3;
    Sleep(start - 2e-4 - Read(CLOCK_MONOTONIC));
    while (Read(CLOCK_MONOTONIC) < start) sched_yield();
    return start;
  }

  void Prepare(int64_t iteration) {
    for (int64_t e = 0; e < arguments_.size; ++e) {
      gradients_[e] = Pattern((float)(rank_ + 1), iteration, e);
    }
    std::fill(sums_.begin(), sums_.end(),
              std::numeric_limits<float>::quiet_NaN());
  }

  // A key's pull leaves when its push is done, while later keys travel.
  void Run() {
    std::vector<int> pushes, pulls;
    for (Slice& slice : slices_) {
      pushes.push_back(kv_.ZPush(slice.keys, slice.gradients, slice.lens));
    }
    for (size_t i = 0; i < slices_.size(); ++i) {
      kv_.Wait(pushes[i]);
      pulls.push_back(kv_.ZPull(slices_[i].keys, &slices_[i].sums));
    }
    for (int pull : pulls) kv_.Wait(pull);
  }

  void Verify(int64_t iteration) {
    const int ranks = ps::NumWorkers();
    const float factor = (float)((int64_t)ranks * (ranks + 1) / 2);
    for (int64_t e = 0; e < arguments_.size; ++e) {
      if (sums_[e] == Pattern(factor, iteration, e)) continue;
      Fail("iteration " + std::to_string(iteration) +
           ": wrong sum at element " + std::to_string(e));
    }
  }

  const Arguments arguments_;
  const int rank_;
  std::vector<float> gradients_, sums_;
  double* const starts_;
  ps::KVWorker<float> kv_;
  std::vector<Slice> slices_;
  std::vector<double> seconds_, cpu_seconds_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) Fail("wants 5 arguments");
  const Arguments arguments = {atoll(argv[1]) / (int64_t)sizeof(float),
                               atoll(argv[2]), atoll(argv[3]), argv[4],
                               atoll(argv[5])};
  ps::Start(0);
  if (ps::IsServer()) {
    Serve(arguments);
    return 0;
  }
  if (ps::IsWorker()) {
    Worker worker(arguments);
    worker.Measure();
    worker.Write();
  }
  ps::Finalize(0, true);
  return 0;
}
