#include "collectives/mailbox.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/message.h"
#include "common/net/wake_count.h"

namespace psring {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// All start at zero, as the arena does.
struct MailboxState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> writer_waits;
};

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kBoxBytes = kPage + kMailboxBytes;
static_assert(sizeof(MailboxState) <= kPage);
static_assert((kMailboxBytes & (kMailboxBytes - 1)) == 0);

// An arena begins with a page about its rank.
struct RankState {
  WakeCount news;  // of which the others have notified it
  alignas(64) std::atomic<uint32_t> reads_no_more;
};
RankState& StateOf(ShmArena& arena) {
  return *reinterpret_cast<RankState*>(arena.data());
}

int64_t OffsetOf(int rank) { return kPage + rank * kBoxBytes; }

// Where in the ring the byte of this number lies, and how many of `size` lie
// there without a break.
struct Place {
  size_t at;
  size_t size;
};
Place PlaceOf(uint64_t number, size_t size) {
  const size_t at = number % kMailboxBytes;
  return {at, std::min(size, static_cast<size_t>(kMailboxBytes) - at)};
}

}  // namespace

// ---- Writing ----

MailWriter::MailWriter(char* memory)
    : state_(*reinterpret_cast<MailboxState*>(memory)), ring_(memory + kPage) {}

size_t MailWriter::Push(absl::string_view bytes) {
  const uint64_t used = written_ - state_.read.load(std::memory_order_seq_cst);
  if (used > kMailboxBytes) return 0;  // not a count of a real reader
  const size_t size = std::min<size_t>(bytes.size(), kMailboxBytes - used);
  const Place first = PlaceOf(written_, size);
  std::memcpy(ring_ + first.at, bytes.data(), first.size);
  std::memcpy(ring_, bytes.data() + first.size, size - first.size);
  written_ += size;
  return size;
}

void MailWriter::Write(absl::string_view header, absl::string_view payload) {
  const uint32_t sizes[] = {static_cast<uint32_t>(header.size()),
                            static_cast<uint32_t>(payload.size())};
  const absl::string_view parts[] = {
      {reinterpret_cast<const char*>(sizes), sizeof(sizes)}, header, payload};
  for (const absl::string_view part : parts) {
    const size_t size = kept_.empty() ? Push(part) : 0;
    kept_.append(part.data() + size, part.size() - size);
  }
  state_.written.store(written_, std::memory_order_seq_cst);
  if (!kept_.empty()) Flush();
}

bool MailWriter::Flush() {
  bool any = false;
  // It says that it waits and looks again, so that room which the reader makes
  // is either seen here or told.
  for (const bool waits : {false, true}) {
    if (kept_.empty()) break;
    if (waits) state_.writer_waits.store(1, std::memory_order_seq_cst);
    const size_t size = Push(absl::string_view(kept_).substr(kept_from_));
    state_.written.store(written_, std::memory_order_seq_cst);
    any |= size > 0;
    kept_from_ += size;
    if (kept_from_ == kept_.size()) {
      kept_ = std::string();  // frees its memory
      kept_from_ = 0;
    } else if (kept_from_ > kept_.size() / 2) {
      kept_.erase(0, std::exchange(kept_from_, 0));
    }
  }
  return any;
}

// ---- Reading ----

MailReader::MailReader(char* memory)
    : state_(*reinterpret_cast<MailboxState*>(memory)), ring_(memory + kPage) {}

bool MailReader::HasInput() const {
  return state_.written.load(std::memory_order_seq_cst) != read_;
}

size_t MailReader::Pull(char* to, size_t size) {
  const uint64_t there = state_.written.load(std::memory_order_seq_cst) - read_;
  size = std::min<uint64_t>({size, there, kMailboxBytes});
  const Place first = PlaceOf(read_, size);
  std::memcpy(to, ring_ + first.at, first.size);
  std::memcpy(to + first.size, ring_, size - first.size);
  read_ += size;
  state_.read.store(read_, std::memory_order_seq_cst);
  return size;
}

bool MailReader::TakeWriterWaits() {
  return state_.writer_waits.load(std::memory_order_seq_cst) != 0 &&
         state_.writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

absl::StatusOr<std::optional<Mail>> MailReader::Next() {
  const uint64_t there = state_.written.load(std::memory_order_seq_cst) - read_;
  if (there > kMailboxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mailbox of ", kMailboxBytes, " bytes with ", there));
  }
  if (filled_ < sizeof(sizes_)) {
    filled_ += Pull(reinterpret_cast<char*>(sizes_) + filled_,
                    sizeof(sizes_) - filled_);
    if (filled_ < sizeof(sizes_)) return std::nullopt;
  }
  if (!mail_.has_value()) {
    if (std::max(sizes_[0], sizes_[1]) > kChunkBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a message of ", sizes_[0], " and ", sizes_[1],
                       " bytes, of at most ", kChunkBytes, " each"));
    }
    mail_.emplace(Mail{Frame::OfSize(sizes_[0]), Frame::OfSize(sizes_[1])});
  }
  size_t before = sizeof(sizes_);  // the part
  for (Frame* const part : {&mail_->header, &mail_->payload}) {
    const size_t end = before + part->size();
    if (filled_ < end) {
      filled_ += Pull(static_cast<char*>(part->data()) + (filled_ - before),
                      end - filled_);
      if (filled_ < end) return std::nullopt;
    }
    before = end;
  }
  filled_ = 0;
  return std::exchange(mail_, std::nullopt);
}

// ---- All of a rank ----

absl::StatusOr<std::unique_ptr<Mailboxes>> Mailboxes::Create(int num_ranks) {
  auto arena = ShmArena::Create(OffsetOf(num_ranks), kPage);
  if (!arena.ok()) return arena.status();
  auto doorbell = Doorbell::Create();
  if (!doorbell.ok()) return doorbell.status();
  return std::unique_ptr<Mailboxes>(
      new Mailboxes(*std::move(arena), *std::move(doorbell)));
}

proto::SharedMemory Mailboxes::address() const {
  proto::SharedMemory address = arena_->address();
  address.add_doorbell_fds(doorbell_->write_fd());
  return address;
}

absl::StatusOr<MailWriter> Mailboxes::Open(int rank) {
  if (absl::Status s = arena_->Reserve(OffsetOf(rank), kBoxBytes); !s.ok()) {
    return s;
  }
  return MailWriter(arena_->data() + OffsetOf(rank));
}

bool Mailboxes::Sleep(int num_news) {
  WakeCount& news = StateOf(*arena_).news;
  return news.PrepareToSleep(news.count() + num_news);
}

void Mailboxes::Wake() {
  StayAwake();
  doorbell_->Clear();
}

void Mailboxes::StayAwake() { StateOf(*arena_).news.WakeUp(); }

void Mailboxes::ReadNoMore() {
  StateOf(*arena_).reads_no_more.store(1, std::memory_order_seq_cst);
}

absl::StatusOr<std::unique_ptr<PeerMailboxes>> PeerMailboxes::Map(
    const proto::SharedMemory& address, int num_ranks) {
  if (address.size_bytes() != OffsetOf(num_ranks) ||
      address.doorbell_fds_size() != 1) {
    return absl::UnavailableError(
        absl::StrCat("mailboxes of ", address.size_bytes(), " bytes with ",
                     address.doorbell_fds_size(), " doorbells, where those of ",
                     num_ranks, " ranks take ", OffsetOf(num_ranks)));
  }
  auto arena = ShmArena::Map(address);
  if (!arena.ok()) return arena.status();
  auto button = DoorbellButton::Open(address.pid(), address.doorbell_fds(0));
  if (!button.ok()) return button.status();
  return std::unique_ptr<PeerMailboxes>(
      new PeerMailboxes(*std::move(arena), *std::move(button)));
}

MailReader PeerMailboxes::Open(int rank) {
  return MailReader(arena_->data() + OffsetOf(rank));
}

bool PeerMailboxes::ReadsNoMore() const {
  return StateOf(*arena_).reads_no_more.load(std::memory_order_seq_cst) != 0;
}

void PeerMailboxes::Notify() {
  if (StateOf(*arena_).news.Add(1)) button_->Ring();
}

}  // namespace psring
