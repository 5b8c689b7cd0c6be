// How far a benchmark is: a line for all that has been measured, and on a
// terminal below them a bar with what is measured now.
#ifndef PSRING_LAB_BENCH_BENCH_PROGRESS_H_
#define PSRING_LAB_BENCH_BENCH_PROGRESS_H_

#include <cstdio>
#include <string>

#include "common/clock.h"
#include "lab/host/terminal.h"

namespace psring {

class BenchProgress {
 public:
  // `columns` 0: `out` is no terminal.
  BenchProgress(FILE* out, int columns) : block_(out, columns) {}
  ~BenchProgress() { block_.Draw({}); }

  // So many measurements follow, one after the other.
  void Expect(int count) { expected_ += count; }

  void OnStart(const std::string& name, Time now);
  void OnDone(const std::string& result);
  // A line that is no result.
  void Tell(const std::string& what) { block_.Print(what + "\n"); }

 private:
  LiveBlock block_;
  int expected_ = 0;
  int done_ = 0;
  Time started_ = Time::InfiniteFuture();  // the first one
};

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_PROGRESS_H_
