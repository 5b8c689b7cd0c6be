// Messages to a rank of the same host, in memory that both have mapped, in
// place of a socket: no other thread or copy of the kernel's is on the way.
//
// A mailbox is a ring of bytes with one writer and one reader, each of whom
// alone moves its own count (Lamport, "Specifying Concurrent Program Modules",
// 1983). A message in it, whole or in parts as there is room:
//
//   message = sizes header payload
//   sizes   = two of 4 bytes, of the host's order: header's and payload's
//
// Each rank has all that it writes in one arena (common/net/shm_arena.h), and
// there a count of news (common/net/wake_count.h): whoever has written
// something for it, or made room, rings its doorbell if it sleeps.
#ifndef PSRING_COLLECTIVES_MAILBOX_H_
#define PSRING_COLLECTIVES_MAILBOX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/doorbell.h"
#include "common/net/shm_arena.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"

namespace psring {

inline constexpr int64_t kMailboxBytes = 64 << 10;  // on the way at once

struct MailboxState;  // the counts, in shared memory

// One thread's at a time.
class MailWriter {
 public:
  // Writes into a mailbox, whose memory outlives this.
  explicit MailWriter(char* memory);

  // Never blocks: keeps what there is no room for.
  void Write(absl::string_view header, absl::string_view payload);
  // Writes what is kept, as far as there is room; whether it wrote anything.
  bool Flush();
  bool keeps_any() const { return !kept_.empty(); }

 private:
  // Puts as many of `bytes` there as there is room for; how many.
  size_t Push(absl::string_view bytes);

  MailboxState& state_;
  char* const ring_;
  uint64_t written_ = 0;
  std::string kept_;
  size_t kept_from_ = 0;  // those before are written
};

struct Mail {
  Frame header;
  Frame payload;
};

// One thread's at a time. The writer may write anything.
class MailReader {
 public:
  // Reads from a mailbox, whose memory outlives this.
  explicit MailReader(char* memory);

  // The next message that is there as a whole; nothing: there is none.
  // INVALID_ARGUMENT, from then on: what is there is no message.
  absl::StatusOr<std::optional<Mail>> Next();
  bool HasInput() const;
  // Whether the writer has waited for room, of which there is some now.
  bool TakeWriterWaits();

 private:
  // Takes at most `size` bytes; how many.
  size_t Pull(char* to, size_t size);

  MailboxState& state_;
  const char* const ring_;
  uint64_t read_ = 0;
  uint32_t sizes_[2] = {};
  size_t filled_ = 0;  // of the message, with its sizes
  std::optional<Mail> mail_;
};

// What this rank writes, and how it is woken. One thread's at a time.
class Mailboxes {
 public:
  // RESOURCE_EXHAUSTED as ShmArena's and Doorbell's.
  static absl::StatusOr<std::unique_ptr<Mailboxes>> Create(int num_ranks);

  // What the others map.
  proto::SharedMemory address() const;

  // The one for `rank`. RESOURCE_EXHAUSTED as ShmArena's.
  absl::StatusOr<MailWriter> Open(int rank);

  // From Sleep on until Wake, so many news make fd() readable. So a rank that
  // wants to wait sleeps first, and then looks whether there is anything to do.
  // False: there is.
  bool Sleep(int num_news);
  void Wake();
  // As Wake, but fd() stays readable where it is.
  void StayAwake();
  int fd() const { return doorbell_->fd(); }

  // Tells the others, who are to be notified, that this rank ends.
  void ReadNoMore();

 private:
  Mailboxes(std::unique_ptr<ShmArena> arena, std::unique_ptr<Doorbell> doorbell)
      : arena_(std::move(arena)), doorbell_(std::move(doorbell)) {}

  const std::unique_ptr<ShmArena> arena_;
  const std::unique_ptr<Doorbell> doorbell_;
};

// Another rank's. One thread's at a time.
class PeerMailboxes {
 public:
  // UNAVAILABLE as ShmArena's and DoorbellButton's, and where they are of
  // another number of ranks.
  static absl::StatusOr<std::unique_ptr<PeerMailboxes>> Map(
      const proto::SharedMemory& address, int num_ranks);

  // The reader of what it writes for `rank`; this object outlives it.
  MailReader Open(int rank);

  // Whether it has ended: what is kept for it is in vain.
  bool ReadsNoMore() const;

  // After something has changed that it may wait for: rings if it sleeps.
  void Notify();

 private:
  PeerMailboxes(std::unique_ptr<ShmArena> arena,
                std::unique_ptr<DoorbellButton> button)
      : arena_(std::move(arena)), button_(std::move(button)) {}

  const std::unique_ptr<ShmArena> arena_;
  const std::unique_ptr<DoorbellButton> button_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_MAILBOX_H_
