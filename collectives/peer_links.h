// This rank's way to every other one: a DEALER each, and on the same host, once
// both sides have seen that they are, a mailbox.
#ifndef PSRING_COLLECTIVES_PEER_LINKS_H_
#define PSRING_COLLECTIVES_PEER_LINKS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/mailbox.h"
#include "collectives/message.h"
#include "collectives/outbox.h"
#include "collectives/shared_chunks.h"
#include "collectives/tickets.h"
#include "common/clock.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// One thread's at a time.
class PeerLinks : public Outbox {
 public:
  // `inbox`, where others are heard, is waited on with the rest.
  // `shares_memory`: what goes to ranks of this host goes through memory.
  PeerLinks(Context& context, const CollectiveJob& job, Socket& inbox,
            bool shares_memory)
      : Outbox(job.endpoints.size()),
        context_(context),
        job_(job),
        shares_memory_(shares_memory),
        by_rank_(job.endpoints.size()),
        sockets_{&inbox} {}

  // Connects at the first message, and offers this rank's memory.
  void Send(int rank, proto::CollectiveHeader header,
            Frame payload = {}) override;
  uint32_t ShareWithCall(int rank, absl::string_view bytes) override {
    return Share(rank, bytes, kNumCallSlots);
  }
  SentChunk SendChunk(int rank, proto::CollectiveHeader header,
                      absl::string_view bytes) override;

  // The memory of a rank that may be on this host.
  void OnOffer(const proto::CollectiveHeader& offer);
  // It can read this rank's, where that has been offered.
  void OnAccept(int rank);
  // It has changed over to its mailbox. INVALID_ARGUMENT where that is not to
  // be read here, or it has done so before.
  absl::Status OnMailbox(int rank);
  // A letter: the next message of a mailbox, as a ROUTER's socket would have
  // it, or why no more come from there; nothing: there is none.
  struct Letter {
    int rank = 0;
    absl::StatusOr<Frames> frames;
  };
  std::optional<Letter> NextLetter();
  // The payload of a CALL or a CHUNK. INVALID_ARGUMENT where its sender has no
  // such memory here.
  absl::Status TakeShared(CollectiveMessage& message);

  // Whether all ranks are on this host, and say and hear everything by
  // mailboxes from now on.
  bool all_by_mailbox() const { return num_by_mailbox_ + 1 == job_.size(); }
  bool HasLetters() const;
  // Messages that wait for room in a mailbox.
  bool keeps_any() const;
  // Before a wait: whether there is nothing to do with mailboxes. If so, until
  // Wake or StayAwake, so many news of them make doorbell_fd() (-1: none)
  // readable: for who awaits as many letters. (One, where room is awaited.)
  bool PrepareToSleep(int num_news = 1);
  void Wake();
  // The same for who takes over from a thread that waits: what is readable
  // stays so.
  void StayAwake();
  int doorbell_fd() const { return own_boxes_ ? own_boxes_->fd() : -1; }

  // The inbox and all sockets so far, to wait on. What comes over the latter is
  // of their links alone (common/net/link.h): Tend takes it.
  const std::vector<Socket*>& sockets() const { return sockets_; }
  // At ranks that have `left` nobody may listen any more, which is no error.
  void Tend(absl::Span<const int> left);
  // At the end: waits until all that was said to those who have not `left`, who
  // need nothing more, is in their mailboxes. What they say meanwhile is lost.
  void Finish(absl::Span<const int> left, Time deadline);

  // The first error of a socket.
  const absl::Status& status() const { return status_; }

 private:
  // Slots for what goes along with CALLs, which others may never take.
  static constexpr int kNumCallSlots = kNumChunkSlots / 2;

  struct Peer {
    std::unique_ptr<Socket> socket;  // null: no message yet
    bool offered = false;            // this rank's memory
    bool reads_memory = false;
    // Null: none that are read here.
    std::unique_ptr<PeerChunks> chunks;
    std::unique_ptr<PeerMailboxes> boxes;
    std::optional<MailWriter> writer;  // nothing: the socket is in use
    bool changed_over = false;         // it has, to its mailbox
    std::optional<MailReader> reader;  // nothing: before that, or after what
                                       // is no message
    std::string reader_name;           // which nobody else has, nor guesses
  };

  int64_t FlowWindow(int rank) const override {
    return by_rank_[rank].reads_memory ? kSharedFlowWindow : kFlowWindow;
  }
  // The slot's number of at most `num_slots`; 0: none.
  uint32_t Share(int rank, absl::string_view bytes, int num_slots);
  absl::Status MakeMemory();
  void Offer(int rank);
  void MaybeChangeOver(int rank);
  // Counts a rank with which both ways are open.
  void Count(const Peer& peer) {
    if (peer.writer.has_value() && peer.reader.has_value()) ++num_by_mailbox_;
  }
  // For ranks that have not `left` and still read.
  bool KeepsAny(absl::Span<const int> left) const;
  void Flush();

  Context& context_;
  const CollectiveJob& job_;
  bool shares_memory_;
  // Null before the first offer.
  std::unique_ptr<SharedChunks> own_;
  std::unique_ptr<Mailboxes> own_boxes_;
  int last_reader_ = 0;  // whose letter was taken last
  int num_by_mailbox_ = 0;
  std::vector<Peer> by_rank_;
  std::vector<Socket*> sockets_;
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_PEER_LINKS_H_
