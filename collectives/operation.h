// One collective under way on one rank.
//
// It begins with a CALL to every other rank of the set, which says what this
// rank calls and carries what is small. When the calls of all ranks have come
// and are equal, it is agreed: chunks flow, into memory that every rank is
// known to have, and so neither waits for calls of other operations. A chunk is
// acknowledged when it has been copied to its place or summed; operands of a
// sum are held until those of all ranks have come, and then summed in the
// canonical order (common/model/reduce.h).
#ifndef PSRING_COLLECTIVES_OPERATION_H_
#define PSRING_COLLECTIVES_OPERATION_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/call.h"
#include "collectives/flow_plan.h"
#include "collectives/message.h"
#include "collectives/outbox.h"
#include "common/clock.h"

namespace psring {

// How long a rank leaves it to the first of the set to say what differs, so
// that all ranks say the same.
inline constexpr absl::Duration kVerdictDelay = absl::Milliseconds(300);

// For whoever runs the mesh; reads no clock. Errors that functions return
// are the sender's, who is not to be heard any more; what ends the operation is
// its failure().
class Operation {
 public:
  // Of `std::calloc`, or null.
  using Scratch = std::unique_ptr<char, void (*)(void*)>;

  // `handle`: the caller's, 0 where there is none. `scratch`: memory of `call`
  // that is nobody else's.
  Operation(CallKey key, Call call, int64_t handle, Time deadline,
            Scratch scratch = Scratch(nullptr, std::free));

  const CallKey& key() const { return key_; }
  const Call& call() const { return call_; }
  int64_t handle() const { return handle_; }
  // For ranks that have not called; then, once all have and after each piece of
  // data, for the next.
  Time deadline() const { return deadline_; }
  void MoveDeadline(Time deadline) { deadline_ = deadline; }

  // The wait for other ranks that the log has told of; zero: none.
  absl::Duration told_wait() const { return told_wait_; }
  void TellWait(absl::Duration waited) { told_wait_ = waited; }

  // `join_round`: goes with the CALLs.
  void Start(Outbox& outbox, uint64_t join_round);

  // A CALL for this operation.
  absl::Status OnCall(Outbox& outbox, CollectiveMessage message, Time now);
  absl::Status OnChunk(Outbox& outbox, CollectiveMessage message);
  absl::Status OnAck(Outbox& outbox, const proto::CollectiveHeader& header);

  // Sends what windows and what has come allow, at most one chunk a flow;
  // whether it has sent any.
  bool SendSome(Outbox& outbox);

  // Acknowledges all that has come: without this rank's sum, too, the senders
  // have done their part.
  void LetGo(Outbox& outbox);
  // Takes what is on its way off the books. It will do nothing more.
  void Abandon(Outbox& outbox);

  // All ranks call the same.
  bool agreed() const { return agreed_; }
  // All that was to come has come, and all that was to be sent has arrived, or
  // lies where the receiver reads it.
  bool complete() const;
  // Others can complete it without this rank.
  bool not_needed() const;

  // Why it cannot be completed; OK while it can.
  absl::Status Failure(Time now) const;

  // Whether rank `rank` of the job is of the set and has not called yet.
  bool Misses(int rank) const;
  // Ranks of the job that have not called; or, once agreed, those that have not
  // sent or not acknowledged everything.
  std::vector<int32_t> Awaited() const;

  Gathered TakeGathered() { return std::move(gathered_); }

 private:
  struct Sending {
    Outflow flow;
    int64_t sent = 0;
    int64_t acked = 0;
    int64_t to_be_acked = 0;  // before the flow is done: the end of what has
                              // gone in messages
    bool eager = false;       // has gone along with the CALL, as its payload

    // What the receiver reads in this rank's memory stays there without it.
    bool done() const { return sent == flow.size && acked >= to_be_acked; }
  };
  struct Receiving {
    Inflow flow;
    int64_t come = 0;         // received
    int64_t taken = 0;        // copied to its place, or summed
    bool eager = false;       // has come with the CALL
    std::vector<Frame> held;  // a window at most
    int64_t summed = 0;       // bytes of the first of them
  };
  struct Caller {
    bool called = false;
    int64_t bytes = 0;
    Frame eager;
  };

  int IndexOf(uint32_t rank) const;  // in the set; -1: not there
  // How many bytes of a flow may go now, whole chunks or its last ones.
  int64_t MaySend(const Outbox& outbox, const Sending& sending) const;
  void Agree(Outbox& outbox);
  void Take(Outbox& outbox, Receiving& from, Frame payload);
  // Sums as far as the operands of all ranks have come.
  void SumHeld(Outbox& outbox);
  void SumRange(Range range, absl::Span<const void* const> operands);
  void MakeAvailable(int64_t bytes);
  void Acknowledge(Outbox& outbox, const Receiving& from);
  void SendAck(Outbox& outbox, int rank, uint32_t round, int64_t offset);

  // Fixed after construction.
  const CallKey key_;
  const Call call_;
  const int64_t handle_;
  const Scratch scratch_;

  Time deadline_;
  absl::Duration told_wait_;

  std::vector<Caller> callers_;  // by rank of the set
  int num_called_ = 1;           // this rank too
  bool agreed_ = false;
  std::vector<Sending> sending_;
  std::vector<Receiving> receiving_;  // once agreed
  std::vector<CollectiveMessage> early_chunks_;
  OwnSum sum_;
  int64_t summed_ = 0;  // elements of sum_.range
  Gathered gathered_;
  // What the first other rank calls that does not call the same.
  std::string mismatch_;
  Time mismatch_since_;
  absl::Status failure_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_OPERATION_H_
