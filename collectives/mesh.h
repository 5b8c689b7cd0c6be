// What this rank says and hears for its collectives: sockets, messages,
// deadlines. Who runs it: collectives/mesh_runner.h.
#ifndef PSRING_COLLECTIVES_MESH_H_
#define PSRING_COLLECTIVES_MESH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/call.h"
#include "collectives/early_calls.h"
#include "collectives/message.h"
#include "collectives/operation.h"
#include "collectives/options.h"
#include "collectives/peer_links.h"
#include "collectives/stall_check.h"
#include "collectives/tickets.h"
#include "collectives/uneven_join.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/net/peer_filter.h"
#include "common/net/socket.h"

namespace psring {

// One thread's at a time.
class Mesh {
 public:
  // Between OnTicks, while an operation is under way.
  static constexpr absl::Duration kTick = absl::Milliseconds(250);

  // `malformed` counts the messages for which peers were dropped; any thread
  // reads it. All arguments outlive it.
  Mesh(Context& context, const Cancellation& cancellation, Tickets& tickets,
       const CollectivesOptions& options, std::atomic<int64_t>& malformed)
      : context_(context),
        cancellation_(cancellation),
        tickets_(tickets),
        options_(options),
        step_timeout_(options.step_timeout),
        malformed_(malformed) {}

  // Listens on `address`; its endpoint.
  absl::StatusOr<std::string> Bind(const std::string& address);

  enum class Hear { kSockets, kMailboxes };
  // Does what there is to do: what callers want, what others say there, what
  // time brings. Never blocks. False: the tickets say stop.
  bool Turn(Hear hear);
  // Fails what is under way, and says so to the others. Blocks for up to 2 s.
  void End();

  // What the collectives' thread waits for: Wait (socket.h), without a turn.
  struct Sleep {
    std::vector<Socket*> sockets;
    std::vector<int> fds;
    Time until;
  };
  Sleep PrepareToSleep();
  // `waited`: what the wait has returned.
  void OnWoken(const absl::Status& waited);

  // Whether a turn with kMailboxes does all that there is to do, now and later,
  // and touches no socket, so that another thread may wait on those meanwhile.
  bool NeedsNoSockets() const;
  // For whoever takes such turns. Whether there is something to do:
  bool HasNews() const;
  // Blocks until there may be, or until `deadline`. For a caller that waits for
  // `handle`: of ranks that have yet to call, it awaits all.
  void AwaitNews(int64_t handle, Time deadline);
  // So that news wake nobody.
  void StayAwake();
  // So that news wake who waits as PrepareToSleep says. False: there are some.
  bool LetNewsWake();

  // Something is under way, or was posted, or was said and not yet written.
  bool HasMoreToDo() const {
    return !is_idle() || tickets_.HasWork() || links_->keeps_any();
  }

 private:
  using Header = proto::CollectiveHeader;

  void Connect(CollectiveJob job);
  bool is_idle() const { return operations_.empty() && join_handle_ == 0; }
  // How many news a caller that waits for `handle` awaits.
  int NumAwaited(int64_t handle) const;

  // What callers want.
  void Begin(Tickets::Posted posted, Time now);
  void Start(std::unique_ptr<Operation> operation, Time now);
  void GiveUp(int64_t handle);

  // What others say.
  void Receive(Time now);
  void ReceiveLetters(Time now);
  void Drop(const std::string& peer, const absl::Status& why, int rank);
  void OnFrames(Frames frames, int proven_rank, Time now);
  absl::Status OnMessage(CollectiveMessage message, Time now);
  absl::Status OnCall(CollectiveMessage message, Time now);
  absl::Status OnChunk(CollectiveMessage message);
  absl::Status OnFailure(CollectiveMessage message, Time now);
  void OnQuestion(const Header& question, Time now);
  void OnAnswer(const Header& answer, Time now);
  absl::Status OnJoined(const Header& header);
  absl::Status OnEverybodyJoined(const Header& header);

  // What time brings.
  void OnTick(Time now);
  // The rank of `left` whose call the operation still needs; -1: none.
  int LeftWithoutCalling(const Operation& operation,
                         const std::vector<int>& left) const;
  void AskAboutStalls(Operation& operation, Time now);
  absl::Status TooLate(const Operation& operation) const;
  // "worker 1 (host b, pid 4711), ...": whom it waits for; empty: nobody.
  std::string WhoIsAwaited(const Operation& operation) const;
  void TellOfLongWait(Operation& operation, Time now);

  void SendChunks(Time now);

  // This rank has no more data, and what it had is summed (mesh_join.cc).
  void MaybeJoin(Time now);
  // The same, where it has said so already.
  void JoinAgain(Time now);
  // All have joined.
  void EndRound(int last);
  // Answers the caller.
  void EndJoin(absl::Status status, int last);
  void TakeAllTurns(Time now);
  // It takes part in what others call under the name of `key`,
  // one occurrence after the other.
  void TakeTurns(CallKey key, Time now);
  // `first`: what another rank calls. With zeros, or not at all.
  void TakePartIn(const Header& first, Time now);

  // After each change: ends the operation, which destroys it, if it is
  // complete or has failed.
  void Settle(Operation& operation, Time now);
  enum class Tell { kNobody, kSet };
  void Fail(Operation& operation, absl::Status why, Tell whom);
  void FailAll(absl::Status why, Tell whom);
  void Finish(Operation& operation, absl::Status status);
  void SendFailure(int rank, const CallKey& key, const absl::Status& why,
                   bool spread);

  Operation* Find(const CallKey& key);
  // This rank has called it, and it has ended.
  bool IsPast(const CallKey& key) const {
    return key.occurrence < early_.NextOccurrence(key);
  }

  // Fixed after construction.
  Context& context_;
  const Cancellation& cancellation_;
  Tickets& tickets_;
  const CollectivesOptions options_;
  const absl::Duration step_timeout_;
  std::atomic<int64_t>& malformed_;

  std::unique_ptr<Socket> inbox_;
  std::optional<PeerFilter> filter_;
  // Once connected.
  CollectiveJob job_;
  std::optional<PeerLinks> links_;
  uint64_t everybody_ = 0;  // the digest of the set of all ranks

  // Those who had left at the last tick: what they sent before has come.
  std::vector<int> left_;

  std::map<CallKey, std::unique_ptr<Operation>> operations_;
  std::unordered_map<int64_t, Operation*> by_handle_;
  std::set<Operation*> sending_;  // those that have chunks to send
  EarlyCalls early_;
  StallCheck stalls_;
  Time next_tick_ = Time::InfinitePast();
  Time last_busy_ = Time::InfinitePast();
  Time last_posted_ = Time::InfinitePast();  // a call of this rank
  bool unacknowledged_ = false;  // something may have come since the last time
  absl::Status broken_;          // why nothing works any more

  std::optional<UnevenJoin> join_;
  int64_t join_handle_ = 0;  // of a caller that has no more data
  Time join_deadline_;
  // The last join has failed, and this rank has called nothing since.
  bool gave_up_join_ = false;
  // The last rank of the round that has ended meanwhile.
  std::optional<int> ended_uncalled_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_MESH_H_
