#include "common/net/socket.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/socket_events.h"
#include "common/net/zmq_error.h"

namespace psring {
namespace {

constexpr int kLinkMessagesAtOnce = 64;
// A peer that says nothing else tells after so many messages, or bytes, that it
// has them: its peer keeps them until then.
constexpr uint64_t kMaxUntold = 16;
constexpr int64_t kMaxUntoldBytes = 4 << 20;
// Peers that nobody has vouched for (Socket::Vouch), and what is kept for all
// of them together: the oldest is forgotten when there is more.
constexpr size_t kMaxNewcomers = 1024;
constexpr int64_t kMaxNewcomerBytes = 4 << 20;
// What is sent to a newcomer again: a word asks for it, so it may not be much.
constexpr size_t kMaxAgain = 4;
// A rank has one socket for another's, which may be made anew, now and then.
constexpr size_t kIdentitiesOfRank = 64;
// Between connections of a peer, on average (ZeroMQ waits as long before it
// connects again); and how many may come at once.
constexpr absl::Duration kConnectInterval = absl::Milliseconds(50);
constexpr int kConnectsAtOnce = 16;

// What a message takes that is kept.
int64_t KeptBytes(absl::Span<const Frame> frames) {
  constexpr int64_t kOverhead = 256;
  int64_t bytes = kOverhead;
  for (const Frame& frame : frames) bytes += static_cast<int64_t>(frame.size());
  return bytes;
}

}  // namespace

absl::string_view Frame::user() const {
  const char* user = zmq_msg_gets(message_.handle(), "User-Id");
  return user == nullptr ? absl::string_view() : user;
}

int Frame::proven_rank() const {
  int rank = -1;
  return absl::SimpleAtoi(user(), &rank) ? rank : -1;
}

int ProvenRank(const Frames& frames) {
  return frames.size() > 1 ? frames[1].proven_rank() : -1;
}

absl::Status CheckSender(int proven_rank, uint32_t sender) {
  if (proven_rank < 0 || static_cast<uint32_t>(proven_rank) == sender) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "worker ", proven_rank, " (by its key) speaks as worker ", sender));
}

Frame Frame::Copy(absl::string_view bytes) {
  Frame frame;
  // No bytes may have no address, which memcpy must not be given.
  if (!bytes.empty()) frame.message_.rebuild(bytes.data(), bytes.size());
  return frame;
}

Frame Frame::OfSize(size_t size_bytes) {
  Frame frame;
  frame.message_.rebuild(size_bytes);
  return frame;
}

Frame Frame::Borrow(const void* data, size_t size_bytes,
                    std::shared_ptr<const void> memory) {
  using Keeper = std::shared_ptr<const void>;
  Frame frame;
  // ZeroMQ only reads what it sends, and may do so long after its socket is
  // gone.
  frame.message_.rebuild(
      const_cast<void*>(data), size_bytes,
      [](void*, void* keeper) { delete static_cast<Keeper*>(keeper); },
      memory == nullptr ? nullptr : new Keeper(std::move(memory)));
  return frame;
}

Frame Frame::Share() {
  Frame frame;
  frame.message_.copy(message_);
  return frame;
}

Socket::~Socket() {
  if (doorkeeper_ != nullptr) SocketEvents::Stop(socket_);
}

Socket::Refusals Socket::TakeRefusals() {
  if (refused_ == nullptr) return {};
  return {refused_->other_key.exchange(0), refused_->no_key.exchange(0),
          refused_->needs_key.exchange(0)};
}

void Socket::Vouch(absl::string_view identity) {
  Peer* const peer = Find(identity);
  if (!vouches_ || peer == nullptr || peer->vouched) return;
  LeaveNewcomers(*peer);
  peer->vouched = true;
  if (!proven_) doorkeeper_->Vouch(peer->fd);
}

void Socket::Ignore(absl::string_view identity) {
  Peer* const peer = Find(identity);
  if (peer != nullptr) peer->ignored = true;
}

void Socket::LeaveNewcomers(const Peer& peer) {
  for (const Frames& kept : peer.kept) newcomer_bytes_ -= KeptBytes(kept);
}

void Socket::ForgetOldestNewcomer() {
  const auto oldest = peers_.find(newcomers_.front());
  newcomers_.pop_front();
  if (oldest == peers_.end() || oldest->second.vouched) return;
  LeaveNewcomers(oldest->second);
  peers_.erase(oldest);
}

// Messages of the first connection need no introduction.
void Socket::OnHandshakes() {
  if (!handshakes_->Read()) return;
  Transmit("", peer_.link.Say(LinkHeader::Kind::kResume), {}).IgnoreError();
}

Socket::Peer* Socket::Find(absl::string_view identity) {
  if (!router_) return &peer_;
  const auto found = peers_.find(identity);
  return found == peers_.end() ? nullptr : &found->second;
}

void Socket::ForgetOldestOf(int rank) {
  std::deque<std::string>& identities = identities_of_[rank];
  peers_.erase(identities.front());
  identities.pop_front();
}

Socket::Peer* Socket::Hear(absl::string_view identity, const Frame& frame,
                           const LinkHeader& header) {
  Peer* const known = Find(identity);
  // ZeroMQ gives such a name to a connection that another has taken the place
  // of: what is left in it comes again over that one.
  if (router_ && (identity.empty() || identity[0] == '\0')) return nullptr;
  const bool begins = header.received == 0 && header.number <= 1 &&
                      header.kind != LinkHeader::Kind::kAck;
  if (known != nullptr || !begins) return known;
  if (vouches_) {
    newcomers_.push_back(std::string(identity));
    if (newcomers_.size() > kMaxNewcomers) ForgetOldestNewcomer();
  } else if (const int rank = frame.proven_rank(); router_ && rank >= 0) {
    identities_of_[rank].push_back(std::string(identity));
    if (identities_of_[rank].size() > kIdentitiesOfRank) ForgetOldestOf(rank);
  }
  return &peers_[std::string(identity)];
}

// A vouched peer that connects anew is as well known.
void Socket::NoteConnection(Peer& peer, Frame& frame, LinkHeader::Kind kind) {
  const int fd = zmq_msg_get(frame.message_.handle(), ZMQ_SRCFD);
  if (fd == peer.fd && kind != LinkHeader::Kind::kResume) return;
  peer.fd = fd;
  if (peer.vouched) doorkeeper_->Vouch(fd);
}

absl::Status Socket::Send(Frames frames) {
  std::string identity;
  if (router_) identity = std::string(frames[0].view());
  Peer* const peer = Find(identity);
  if (peer == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "cannot send on ", endpoint_, ": nobody has connected as ", identity));
  }
  const absl::Span<Frame> parts = absl::MakeSpan(frames).subspan(router_);
  Frames kept;
  kept.reserve(parts.size());
  for (Frame& part : parts) {
    bytes_sent_ += static_cast<int64_t>(part.size());
    kept.push_back(part.Share());
  }
  peer->kept.push_back(std::move(kept));
  peer->untold_bytes = 0;
  const absl::Status sent = Transmit(identity, peer->link.Next(), parts);
  if (IsNewcomer(*peer)) newcomer_bytes_ += KeptBytes(peer->kept.back());
  while (newcomer_bytes_ > kMaxNewcomerBytes) ForgetOldestNewcomer();
  return sent;
}

absl::Status Socket::Transmit(absl::string_view identity,
                              const LinkHeader& header,
                              absl::Span<Frame> frames) {
  const auto send = [this](auto&& part, bool more) {
    const auto flags = more ? zmq::send_flags::sndmore : zmq::send_flags::none;
    return Uninterrupted([&] {
      return socket_.send(part, flags | zmq::send_flags::dontwait).has_value();
    });
  };
  told_ = false;
  try {
    if (router_) send(zmq::buffer(identity.data(), identity.size()), true);
    // Nothing: a connection that ZeroMQ has given up. It is kept for the next.
    const auto encoded = Encode(header);
    if (!send(zmq::buffer(encoded), !frames.empty())) return absl::OkStatus();
    for (size_t i = 0; i < frames.size(); ++i) {
      send(frames[i].message_, i + 1 < frames.size());
    }
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    // It is kept until the peer is connected.
    if (error.num() == EHOSTUNREACH) return absl::OkStatus();
    return ErrorOf(error, absl::StrCat("cannot send on ", endpoint_));
  }
}

void Socket::Resend(absl::string_view identity, Peer& peer) {
  if (IsNewcomer(peer) && peer.kept.size() > kMaxAgain) return;
  for (size_t i = 0; i < peer.kept.size(); ++i) {
    Frames frames;
    for (Frame& part : peer.kept[i]) frames.push_back(part.Share());
    Transmit(identity, peer.link.Again(i), absl::MakeSpan(frames))
        .IgnoreError();
  }
}

void Socket::TellHeard(absl::string_view identity, Peer& peer) {
  peer.untold_bytes = 0;
  Transmit(identity, peer.link.Say(LinkHeader::Kind::kAck), {}).IgnoreError();
}

void Socket::Acknowledge() {
  if (!router_ && peer_.link.untold() > 0) TellHeard("", peer_);
  for (auto& [identity, peer] : peers_) {
    if (peer.link.untold() > 0) TellHeard(identity, peer);
  }
}

bool Socket::delivered() const {
  return peer_.kept.empty() &&
         std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.kept.empty(); });
}

absl::StatusOr<std::optional<Frames>> Socket::TryReceive() {
  if (handshakes_.has_value()) {
    if (MissesConnection()) OnHandshakes();  // it may be there by now
    if (MissesConnection()) handshakes_->CheckReach(Now());
    if (!handshakes_->refused().ok()) return handshakes_->refused();
  }
  // Some, so that nobody keeps a thread here with what is not for it.
  for (int i = 0; i < kLinkMessagesAtOnce; ++i) {
    auto frames = ReceiveFrames();
    if (!frames.ok() || !frames->has_value()) return frames;
    std::optional<Frames> message = Take(*std::move(*frames));
    if (message.has_value()) return message;
  }
  return std::optional<Frames>();
}

// The message that is due, if that is what has come.
std::optional<Frames> Socket::Take(Frames frames) {
  const size_t at = router_ ? 1 : 0;
  const std::string identity(router_ ? frames[0].view() : "");
  const auto malformed = [&] {
    frames.resize(at);
    return std::optional<Frames>(std::move(frames));
  };
  std::optional<LinkHeader> header;
  if (frames.size() > at) header = ParseLinkHeader(frames[at].view());
  const bool has_parts = frames.size() > at + 1;
  if (!header.has_value() ||
      has_parts != (header->kind == LinkHeader::Kind::kMessage)) {
    return malformed();
  }
  // Nobody whose key has not been asked about comes so far: see doorkeeper.h.
  if (proven_ && frames[at].user().empty()) return malformed();
  Peer* const peer = Hear(identity, frames[at], *header);
  if (peer == nullptr) return std::nullopt;
  if (vouches_ && !proven_) NoteConnection(*peer, frames[at], header->kind);
  if (peer->ignored && header->kind == LinkHeader::Kind::kMessage) {
    return std::nullopt;
  }
  if (!MayConnectAnew(*peer, header->kind)) return malformed();
  const std::optional<Link::News> news = peer->link.OnHeader(*header);
  if (!news.has_value()) return malformed();
  Answer(identity, *peer, header->kind, *news);
  if (!news->deliver) return std::nullopt;
  frames.erase(frames.begin() + static_cast<int64_t>(at));
  for (size_t i = at; i < frames.size(); ++i) {
    bytes_received_ += static_cast<int64_t>(frames[i].size());
    peer->untold_bytes += static_cast<int64_t>(frames[i].size());
  }
  if (peer->link.untold() >= kMaxUntold ||
      peer->untold_bytes >= kMaxUntoldBytes) {
    TellHeard(identity, *peer);
  }
  return frames;
}

// What is sent again then is whatever the peer says it lacks: a word of a few
// bytes may ask for all that it never acknowledged.
bool Socket::MayConnectAnew(Peer& peer, LinkHeader::Kind kind) {
  if (kind != LinkHeader::Kind::kResume && kind != LinkHeader::Kind::kResumed) {
    return true;
  }
  const Time now = Now();
  if (peer.resumed_until >= now + kConnectsAtOnce * kConnectInterval) {
    return false;
  }
  peer.resumed_until = std::max(peer.resumed_until, now) + kConnectInterval;
  return true;
}

void Socket::Answer(absl::string_view identity, Peer& peer,
                    LinkHeader::Kind kind, const Link::News& news) {
  using Kind = LinkHeader::Kind;
  for (size_t i = 0; i < news.acknowledged; ++i) {
    if (IsNewcomer(peer)) newcomer_bytes_ -= KeptBytes(peer.kept.front());
    peer.kept.pop_front();
  }
  if (kind == Kind::kResume) {
    Transmit(identity, peer.link.Say(Kind::kResumed), {}).IgnoreError();
  }
  if (kind == Kind::kResume || kind == Kind::kResumed) Resend(identity, peer);
}

absl::StatusOr<std::optional<Frames>> Socket::ReceiveFrames() {
  told_ = false;
  try {
    Frames frames;
    bool more = true;
    while (more) {
      Frame frame;
      const auto size = Uninterrupted([&] {
        return socket_.recv(frame.message_, zmq::recv_flags::dontwait);
      });
      if (!size.has_value()) {
        told_ = true;
        return std::optional<Frames>();
      }
      more = frame.message_.more();
      frames.push_back(std::move(frame));
    }
    return std::optional<Frames>(std::move(frames));
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot receive on ", endpoint_));
  }
}

}  // namespace psring
