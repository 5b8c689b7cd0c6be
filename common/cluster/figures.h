// What a process says of itself for people to look at, with its heartbeats.
#ifndef PSRING_COMMON_CLUSTER_FIGURES_H_
#define PSRING_COMMON_CLUSTER_FIGURES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/cluster/clock_offset.h"
#include "common/mutex.h"
#include "protos/cluster.pb.h"

namespace psring {

// Where a process's threads put their figures, and its heartbeats find them.
// Any thread.
class FigureBoard {
 public:
  // `change` sets what is new, or adds to it; it may not use the board.
  void Update(const std::function<void(proto::Figures&)>& change);

  // A worker has made `step`: its gradients were ready at `arrived`, and it
  // went on at `went_on`. Of steps that are many, some are kept: the same on
  // all workers, as they are those that a power of two divides, and in ssp
  // those that these wait for.
  void AddStep(int64_t step, Time arrived, Time went_on);

  // For a heartbeat; its records are not told again. Without a `clock` they
  // cannot be told. Adds the memory that the process holds now.
  proto::Figures Take(const std::optional<ClockOffset>& clock);

 private:
  struct Record {
    int64_t step;
    Time arrived, went_on;
  };

  Mutex mutex_;
  proto::Figures figures_ ABSL_GUARDED_BY(mutex_);
  std::vector<Record> records_ ABSL_GUARDED_BY(mutex_);
  int64_t stride_ ABSL_GUARDED_BY(mutex_) = 1;  // a power of two
};

// Of what a peer has sent: no more than a correct one sends, and numbers that
// are some; a loss or an accuracy that is not finite is NaN.
proto::Figures CleanFigures(proto::Figures figures);

// Of a peer's text at most 256 bytes, printable.
std::string CleanWord(absl::string_view text);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_FIGURES_H_
