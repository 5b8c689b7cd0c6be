// What a rank calls: an operation of a set of ranks, by name, on its memory.
#ifndef PSRING_COLLECTIVES_CALL_H_
#define PSRING_COLLECTIVES_CALL_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/reduction.h"
#include "common/model/layout.h"
#include "protos/collective.pb.h"

namespace psring {

inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxTagBytes = 1024;
// Of anything that one rank brings.
inline constexpr int64_t kMaxCollectiveBytes = int64_t{1} << 40;

// Which operation a message belongs to, whatever the order of calls.
struct CallKey {
  uint64_t set_digest = 0;
  std::string name;
  uint64_t occurrence = 0;  // how often the set has used the name before
  uint32_t set_size = 0;

  friend auto operator<=>(const CallKey& a, const CallKey& b) = default;
};

CallKey KeyOf(const proto::CollectiveKey& key);
proto::CollectiveKey ProtoOf(const CallKey& key);

// Equal for equal ranks.
uint64_t DigestOf(absl::Span<const int32_t> set);

struct Call {
  std::string name;
  std::vector<int32_t> set;    // ranks of the job, sorted; this one is in it
  int index = 0;               // of this rank in `set`
  proto::CollectiveCall what;  // equal on all ranks
  const char* in = nullptr;    // BROADCAST: the same as out
  char* out = nullptr;
  // What this rank brings, in bytes: ALLGATHER, one number; ALLTOALL, one for
  // each rank of the set.
  std::vector<int64_t> bytes;
  // ALLGATHER, ALLTOALL: of `out`, which takes what comes if it is as much.
  int64_t out_bytes = 0;

  int size() const { return static_cast<int>(set.size()); }
  Arithmetic arithmetic() const;
};

// Of a call that somebody makes: what is wrong with it, or OK.
// INVALID_ARGUMENT.
absl::Status CheckCall(const proto::CollectiveCall& what, int set_size);

// "allreduce".
absl::string_view NameOf(proto::CollectiveCall::Operation operation);
// "allreduce 'loss'".
std::string Describe(proto::CollectiveCall::Operation operation,
                     absl::string_view name);
std::string Describe(const Call& call);

// "" for equal calls, else what differs: "allreduce 'loss': rank 0 brings 10
// float32, rank 2 brings 12 float32".
std::string Difference(absl::string_view name, const proto::CollectiveCall& a,
                       int rank_a, const proto::CollectiveCall& b, int rank_b);

// Elements by rank of the set: what each of them sums, of an ALLREDUCE the
// slices of the canonical sum (common/model/reduce.h), of a REDUCESCATTER its
// counts.
std::vector<Range> SlicesOf(const proto::CollectiveCall& what, int set_size);

}  // namespace psring

#endif  // PSRING_COLLECTIVES_CALL_H_
