// The order in which a shard took its gradients and gave parameters away, on
// disk: one file a shard. It is all that chance decides in an asynchronous run,
// as what a worker computes follows from the parameters it was given, and those
// from the order. A push's answer follows from the pushes; what a worker asks
// for by itself (its first parameters, while others may be training already) is
// recorded too, as step kPullTurn.
//
//   file    magic size header entry* end
//   magic   8 bytes, kMagic
//   size    u32, of the header
//   header  proto::UpdateLogHeader
//   entry   piece u32, worker u32, step i64
//   end     0xffffffff u32, crc32 of all entries u32, their number i64
//
// Numbers are little-endian. A file without its end is one of a run that
// failed, or has been cut.
#ifndef PSRING_PS_UPDATE_LOG_H_
#define PSRING_PS_UPDATE_LOG_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"

namespace psring {

// What a log of the job's `shard`-th shard begins with.
proto::UpdateLogHeader UpdateLogHeaderOf(const proto::Welcome& job, int shard);

inline constexpr int64_t kPullTurn = -1;

struct UpdateTurn {
  int worker = 0;
  int64_t step = 0;  // or kPullTurn

  friend bool operator==(const UpdateTurn& a, const UpdateTurn& b) = default;
};

class UpdateLogWriter {
 public:
  // Makes `directory` and the shard's file in it. ALREADY_EXISTS: nothing is
  // overwritten.
  static absl::StatusOr<UpdateLogWriter> Create(
      const std::string& directory, const proto::UpdateLogHeader& header);

  // The shard has taken this worker's gradient of a piece. Buffered.
  absl::Status Append(int piece, UpdateTurn turn);
  // Writes the end. Once.
  absl::Status Finish();

 private:
  absl::Status Written() const;

  std::string path_;
  std::ofstream file_;
  uint32_t crc_ = 0;
  int64_t count_ = 0;
};

// The turns of every piece, by piece. FAILED_PRECONDITION when another job was
// recorded than `expected`, with what differs; DATA_LOSS for a file that is cut
// or damaged; NOT_FOUND without one.
absl::StatusOr<std::vector<std::vector<UpdateTurn>>> ReadUpdateLog(
    const std::string& directory, const proto::UpdateLogHeader& expected,
    int num_pieces);

}  // namespace psring

#endif  // PSRING_PS_UPDATE_LOG_H_
