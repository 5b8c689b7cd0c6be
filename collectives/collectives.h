// Collectives among the workers of a job, in both modes: of what is no model's
// gradients.
//
// Every call starts an operation and gives a handle; Wait tells when it is
// done. An operation is named, and known by its set of ranks, its name, and how
// often that set has used the name: all ranks of the set call the same, in any
// order among different names, and from any thread. But where the main threads
// of two ranks wait for each other's calls, both fail soon (stall_check.h):
// what another thread would call only then does not count, except for calls
// with an order (SetOrder). A name may be used again once its handle is done.
// Names are remembered for ever, so they should not grow without end.
//
// Sockets and messages: collectives/mesh.h. Which bytes go where:
// collectives/flow_plan.h.
#ifndef PSRING_COLLECTIVES_COLLECTIVES_H_
#define PSRING_COLLECTIVES_COLLECTIVES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/dtype.h"
#include "collectives/mesh.h"
#include "collectives/mesh_runner.h"
#include "collectives/options.h"
#include "collectives/reduction.h"
#include "collectives/tickets.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// Where an operation puts what it brings, in place of memory of its own, if
// Sizes add up to `bytes`: then it has no Result. It overlaps nothing of `in`
// but what this rank brings for itself, where that comes.
struct ResultPlace {
  void* out = nullptr;
  int64_t bytes = 0;
};

class Collectives {
 public:
  // Ranks of the job, sorted, this one among them; none: all ranks.
  using RankSet = absl::Span<const int32_t>;

  // Starts the thread and listens on `address` (numeric), port chosen by the
  // system. `context` and `cancellation` outlive it; when the latter is
  // cancelled, all operations fail with its reason.
  static absl::StatusOr<std::unique_ptr<Collectives>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address, const CollectivesOptions& options = {});

  // Fails what is under way, here and on the other ranks.
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // For the others' Connect.
  const std::string& endpoint() const { return endpoint_; }

  // Once, before any operation. Others may have begun.
  absl::Status Connect(CollectiveJob job);

  // All below: any thread. What starts an operation waits for nobody, and
  // returns its handle, above 0. Its memory stays where it is, and is neither
  // changed nor read by the caller, until the handle is done or released.
  // Errors are the caller's, INVALID_ARGUMENT, but for RESOURCE_EXHAUSTED
  // (kMaxPending); all others are Wait's. A name has 1 to kMaxNameBytes, a tag
  // up to kMaxTagBytes; tags must be equal on all ranks.

  // out = postscale * reduction(prescale * in), elementwise: see reduction.h.
  // The same bits on all ranks: operands in the canonical order
  // (common/model/reduce.h). out may be in.
  absl::StatusOr<int64_t> AllReduce(absl::string_view name, const void* in,
                                    void* out, int64_t num_elements,
                                    const Arithmetic& how, RankSet set = {});

  // Everybody's bytes, whatever their sizes: Sizes and Result.
  absl::StatusOr<int64_t> AllGather(absl::string_view name, const void* in,
                                    int64_t bytes, absl::string_view tag = "",
                                    RankSet set = {}, ResultPlace place = {});

  // data becomes that of `root`, a rank of the job.
  absl::StatusOr<int64_t> Broadcast(absl::string_view name, void* data,
                                    int64_t bytes, int root,
                                    absl::string_view tag = "",
                                    RankSet set = {});

  // bytes[i] of `in`, one after the other, go to the i-th rank of the set; what
  // comes: Sizes and Result.
  absl::StatusOr<int64_t> AllToAll(absl::string_view name, const void* in,
                                   absl::Span<const int64_t> bytes,
                                   absl::string_view tag = "", RankSet set = {},
                                   ResultPlace place = {});

  // Of the reduction of `in`, the elements from the sum of the counts before
  // this rank's on: counts[i] for the i-th rank of the set. Their order: the
  // c-th rank's begin with the (c+1)-th rank's. out does not overlap in.
  absl::StatusOr<int64_t> ReduceScatter(absl::string_view name, const void* in,
                                        void* out,
                                        absl::Span<const int64_t> counts,
                                        const Arithmetic& how,
                                        RankSet set = {});

  // Done when all ranks of the set have called it.
  absl::StatusOr<int64_t> Barrier(absl::string_view name, RankSet set = {});

  // This rank has no more data (Horovod's join). When what it has begun is
  // done, it takes part with zeros in the others' barriers, and in their
  // allreduces and reducescatters that sum or average over all ranks; whatever
  // else others begin with it fails. Done when all ranks have called it; the
  // result is an int32, the last rank to call it. The others still count on a
  // rank whose call has failed or was released: called again, it goes on with
  // that.
  absl::StatusOr<int64_t> JoinUneven();

  // Blocks for at most `timeout`; whether the handle is done, or the error of
  // the operation. What is done stays until it is released.
  absl::StatusOr<bool> Wait(int64_t handle, absl::Duration timeout);

  // The main thread's calls of one `order` (up to kMaxNameBytes) follow each
  // other in the same order on all ranks: where two ranks wait for different
  // ones, in whatever threads, both fail soon. Called by another thread than
  // the main one, or too late, it does nothing.
  absl::Status SetOrder(int64_t handle, absl::string_view order);

  // Forgets the handle. One that is not done is given up: where others need
  // this rank for it, it fails there. Afterwards its memory is not touched.
  absl::Status Release(int64_t handle) { return tickets_.Release(handle); }

  // What AllGather and AllToAll have brought: the bytes of each rank of the
  // set; and all of them, one after the other. JoinUneven: 4 bytes.
  absl::StatusOr<std::vector<int64_t>> Sizes(int64_t handle) {
    return tickets_.Sizes(handle);
  }
  absl::Status Result(int64_t handle, void* out, int64_t bytes) {
    return tickets_.Copy(handle, out, bytes);
  }

  // Messages for which peers were dropped.
  int64_t malformed() const { return malformed_; }

 private:
  Collectives(Context& context, const Cancellation& cancellation,
              const CollectivesOptions& options);

  absl::StatusOr<Call> MakeCall(absl::string_view name, RankSet set,
                                proto::CollectiveCall what) const;
  // bytes: to or from one rank.
  absl::StatusOr<int64_t> Post(std::optional<Call> call, int64_t bytes);

  std::string endpoint_;
  int rank_ = 0;
  int size_ = 0;  // 0: not connected
  std::atomic<int64_t> malformed_ = 0;
  Tickets tickets_;
  Mesh mesh_;
  MeshRunner runner_;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_COLLECTIVES_H_
