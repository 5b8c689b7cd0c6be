#include "common/net/doorkeeper.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/net/keys.h"
#include "common/net/peer_network.h"
#include "common/net/socket_cookie.h"
#include "common/net/socket_events.h"
#include "common/net/zmq_error.h"

namespace psring {
namespace {

// What a listener sends at most to whom it does not let in, and less than it
// sends to others. A greeting has 64 bytes (RFC 23). CURVE (RFC 26): WELCOME
// 170 and ERROR 12, or READY 54 and more. PLAIN (RFC 24): ERROR 12, or WELCOME
// 10 and READY 32 and more.
constexpr int64_t kCurveProofBytes = 260;
constexpr int64_t kPlainProofBytes = 90;

// What the kernel takes at once from somebody who is known.
constexpr int kKnownBytes = 1 << 20;

constexpr int kEventsAtOnce = 64;

// Between two lines about the same trouble.
constexpr absl::Duration kTellAgain = absl::Seconds(60);

// A question's frames.
enum Question {
  kVersion,
  kRequest,
  kDomain,
  kAddress,
  kIdentity,
  kMechanism,
  kKey,       // CURVE: a public key. PLAIN: the name, a worker's token
  kPassword,  // PLAIN
};

// A stranger sends until the doorkeeper's thread has woken, so this asks the
// kernel to run the calling thread soon after each wake-up: for at most a tenth
// of a millisecond at a time, in return. Linux before 6.12 does not do so.
void WakeSoon() {
  // The kernel's sched_attr: its header does not go with older C libraries'.
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;  // ns
  } attributes = {};
  attributes.size = sizeof(attributes);
  attributes.policy = SCHED_OTHER;
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, /*this thread*/ 0, &attributes, /*flags=*/0);
}

std::vector<std::string> Receive(zmq::socket_t& socket) {
  std::vector<std::string> frames;
  bool more = true;
  while (more) {
    zmq::message_t frame;
    const auto size = Uninterrupted(
        [&] { return socket.recv(frame, zmq::recv_flags::dontwait); });
    if (!size.has_value()) break;
    more = frame.more();
    frames.push_back(frame.to_string());
  }
  return frames;
}

// Whoever finds out first hangs up, perhaps before it has said that it has a
// key or none.
void Count(uint16_t event, uint32_t reason, bool keyed,
           RefusedHandshakes& refused) {
  const bool protocol = event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
      (protocol && reason == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)) {
    ++(keyed ? refused.no_key : refused.needs_key);
  } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH ||
             (protocol && reason == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)) {
    ++refused.other_key;
  }
}

constexpr int kListenerEvents = ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED |
                                kHandshakeFailures | ZMQ_EVENT_MONITOR_STOPPED;

// Those of this process, which share its open files.
std::atomic<size_t> num_doorkeepers = 0;

// ZeroMQ listens in circles where no more files can be opened: strangers get a
// part of those that may be, whatever the number of contexts.
size_t MaxVisitors() {
  const size_t sharers = std::max<size_t>(num_doorkeepers, 1);
  size_t most = Visitors::Limits().connections;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    most = std::min<size_t>(files.rlim_cur / 4, most);
  }
  return std::max<size_t>(most / sharers, 8);
}

}  // namespace

struct Doorkeeper::Listener {
  SocketEvents events;
  bool keyed = false;
  int port = 0;
  int64_t proof_bytes = 0;  // Visitors::Arrive
  std::shared_ptr<RefusedHandshakes> refused;
};

Doorkeeper::Doorkeeper(zmq::context_t& context, Locks locks)
    : context_(context),
      locks_(std::move(locks)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      visitors_({}),
      limiter_({}) {
  ++num_doorkeepers;
}

absl::StatusOr<std::unique_ptr<Doorkeeper>> Doorkeeper::Start(
    zmq::context_t& context, Locks locks) {
  std::unique_ptr<Doorkeeper> doorkeeper(
      new Doorkeeper(context, std::move(locks)));
  if (doorkeeper->wake_fd_ < 0 || doorkeeper->visitors_.fd() < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot watch connections: ", std::strerror(errno),
                     ". Raise the limit of open files (ulimit -n)"));
  }
  std::promise<absl::Status> bound;
  auto result = bound.get_future();
  doorkeeper->thread_ =
      std::thread([self = doorkeeper.get(), b = std::move(bound)]() mutable {
        try {
          zmq::socket_t questions(self->context_, zmq::socket_type::rep);
          questions.set(zmq::sockopt::linger, 0);
          questions.bind("inproc://zeromq.zap.01");
          b.set_value(absl::OkStatus());
          self->Run(questions);
        } catch (const zmq::error_t& error) {
          b.set_value(absl::UnavailableError(
              absl::StrCat("cannot start to check keys: ", error.what())));
        }
      });
  if (absl::Status s = result.get(); !s.ok()) return s;
  return doorkeeper;
}

Doorkeeper::~Doorkeeper() {
  --num_doorkeepers;
  stop_ = true;
  eventfd_write(wake_fd_, 1);
  if (thread_.joinable()) thread_.join();
  close(wake_fd_);
}

void Doorkeeper::AllowWorkers(const std::vector<std::string>& keys) {
  MutexLock lock(&mutex_);
  workers_.clear();
  for (size_t rank = 0; rank < keys.size(); ++rank) {
    workers_.emplace(keys[rank], static_cast<int>(rank));
  }
}

std::shared_ptr<RefusedHandshakes> Doorkeeper::Watch(zmq::socket_t& listener,
                                                     bool keyed) {
  Listener watched = {
      .events = SocketEvents(context_, listener, kListenerEvents),
      .keyed = keyed,
      .refused = nullptr};
  if (keyed) {
    watched.proof_bytes =
        locks_.member_key.empty() ? kPlainProofBytes : kCurveProofBytes;
  }
  watched.refused = std::make_shared<RefusedHandshakes>();
  auto refused = watched.refused;
  {
    // The mutex hands the socket to the other thread.
    MutexLock lock(&mutex_);
    new_listeners_.push_back(std::move(watched));
  }
  eventfd_write(wake_fd_, 1);
  return refused;
}

void Doorkeeper::Vouch(int fd) {
  const auto cookie = SocketCookie(fd);
  if (!cookie.has_value()) return;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kKnownBytes, sizeof(kKnownBytes));
  {
    MutexLock lock(&mutex_);
    vouched_.push_back(*cookie);
  }
  eventfd_write(wake_fd_, 1);
}

void Doorkeeper::TakeOrders(std::vector<Listener>& listeners) {
  eventfd_t value = 0;
  eventfd_read(wake_fd_, &value);
  MutexLock lock(&mutex_);
  for (Listener& listener : new_listeners_) {
    listeners.push_back(std::move(listener));
  }
  new_listeners_.clear();
  for (const uint64_t cookie : vouched_) visitors_.Vouch(cookie);
  vouched_.clear();
}

std::string Doorkeeper::UserOf(const std::vector<std::string>& question) {
  if (question.size() <= kKey || question[kVersion] != "1.0") return "";
  const bool curve = question[kMechanism] == "CURVE";
  if (curve != !locks_.member_key.empty()) return "";
  if (question[kDomain] == kControlDomain) {
    return curve && question[kKey] == locks_.member_key ? "member" : "";
  }
  const bool asked = curve || (question[kMechanism] == "PLAIN" &&
                               question.size() > kPassword &&
                               SameText(question[kPassword], locks_.token));
  if (question[kDomain] != kDataDomain || !asked) return "";
  MutexLock lock(&mutex_);
  const auto found = workers_.find(question[kKey]);
  return found == workers_.end() ? "" : absl::StrCat(found->second);
}

void Doorkeeper::AnswerQuestion(zmq::socket_t& questions) {
  const std::vector<std::string> question = Receive(questions);
  if (question.empty()) return;
  const std::string user = UserOf(question);
  const std::string request =
      question.size() > kRequest ? question[kRequest] : "";
  const std::string answer[] = {"1.0", request, user.empty() ? "400" : "200",
                                "",    user,    ""};
  for (size_t i = 0; i < std::size(answer); ++i) {
    const auto flags = i + 1 < std::size(answer) ? zmq::send_flags::sndmore
                                                 : zmq::send_flags::none;
    Uninterrupted([&] { questions.send(zmq::buffer(answer[i]), flags); });
  }
}

// Some at a time, so that nobody keeps it from its other work.
bool Doorkeeper::OnEvents(Listener& listener) {
  for (int i = 0; i < kEventsAtOnce; ++i) {
    const auto event = listener.events.Next();
    if (!event.has_value()) break;
    if (event->kind == ZMQ_EVENT_MONITOR_STOPPED) return false;
    if (event->kind == ZMQ_EVENT_LISTENING) {
      listener.port = LocalPort(static_cast<int>(event->value));
      limiter_.Watch(static_cast<int>(event->value));
    } else if (event->kind == ZMQ_EVENT_ACCEPTED) {
      OnArrival(static_cast<int>(event->value), listener);
    } else {
      Count(event->kind, event->value, listener.keyed, *listener.refused);
    }
  }
  return true;
}

// ZeroMQ may have closed it already, and have got its descriptor for something
// else: another listener's connection, or one of its own making.
void Doorkeeper::OnArrival(int fd, const Listener& listener) {
  TellOfFiles(fd);
  const auto from = NetworkOf(fd);
  if (!from.has_value() || LocalPort(fd) != listener.port) return;
  if (visitors_.Arrive(fd, *from, listener.proof_bytes, Now())) {
    limiter_.TakeToken(*from, Now());
  }
}

void Doorkeeper::Run(zmq::socket_t& questions) {
  WakeSoon();
  std::vector<Listener> listeners;
  std::vector<zmq::pollitem_t> items;
  while (!stop_) {
    try {
      items = {{questions.handle(), 0, ZMQ_POLLIN, 0},
               {nullptr, wake_fd_, ZMQ_POLLIN, 0},
               {nullptr, visitors_.fd(), ZMQ_POLLIN, 0}};
      for (Listener& listener : listeners) {
        items.push_back({listener.events.handle(), 0, ZMQ_POLLIN, 0});
      }
      const Time deadline = std::min(visitors_.Deadline(), limiter_.Deadline());
      const absl::Duration left = deadline - Now() + absl::Milliseconds(1);
      zmq::poll(items, deadline == Time::InfiniteFuture()
                           ? std::chrono::milliseconds(-1)
                           : absl::ToChronoMilliseconds(
                                 std::max(left, absl::ZeroDuration())));
      visitors_.AllowConnections(MaxVisitors());
      limiter_.ShareAmong(num_doorkeepers);
      TakeOrders(listeners);
      AnswerQuestion(questions);
      const auto gone =
          std::remove_if(listeners.begin(), listeners.end(),
                         [this](Listener& l) { return !OnEvents(l); });
      listeners.erase(gone, listeners.end());
      visitors_.Look(Now());
      for (const PeerNetwork& network : visitors_.TakeShown()) {
        limiter_.GiveBack(network, Now());
      }
      limiter_.Look(Now());
      TellOfVisitors();
      TellOfFlood();
    } catch (const zmq::error_t& error) {
      // ZeroMQ takes a question without an answer for a refusal.
      if (error.num() == ETERM) return;
    }
  }
}

// A new file has the lowest number that is free. ZeroMQ also tells of each
// connection that it could not accept, but without end: it tries again at once.
void Doorkeeper::TellOfFiles(int newest) {
  rlimit files = {};
  if (Now() < tell_of_files_ || getrlimit(RLIMIT_NOFILE, &files) != 0 ||
      static_cast<rlim_t>(newest) + 1 < files.rlim_cur) {
    return;
  }
  tell_of_files_ = Now() + kTellAgain;
  LogWarning(
      "this process has as many files open as it may, $0: what is connected "
      "stays, and other connections wait. Raise the limit (ulimit -n)",
      files.rlim_cur);
}

void Doorkeeper::TellOfFlood() {
  const auto& dropped = limiter_.dropped();
  if (dropped.empty() || Now() < tell_of_flood_) return;
  tell_of_flood_ = Now() + kTellAgain;
  const std::string who =
      dropped.size() == 1
          ? Text(*dropped.begin())
          : absl::StrCat(Text(*dropped.begin()), " and ", dropped.size() - 1,
                         " other addresses");
  if (limiter_.error() != 0) {
    return LogWarning(
        "too many connections come from $0 that do not show who they are, and "
        "the kernel refuses to drop requests for more (SO_ATTACH_FILTER: $1). "
        "If they are strangers', a firewall keeps them away",
        who, std::strerror(limiter_.error()));
  }
  LogWarning(
      "too many connections come from $0 that do not show who they are. This "
      "process accepts $1 per second from each address, so processes of this "
      "job may need several tries to connect from there. If they are "
      "strangers', a firewall keeps them away",
      who, AcceptLimiter::Limits().per_second);
}

// At the 1st, the 10th, the 100th ...
void Doorkeeper::TellOfVisitors() {
  const Visitors::Counts& cut = visitors_.counts();
  if (cut.all() < told_at_) return;
  while (told_at_ <= cut.all()) told_at_ *= 10;
  LogWarning(
      "cut off $0 connections so far that did not show who they are: $1 said "
      "too much, $2 took too long, $3 were too many at once. Strangers, whom "
      "a firewall keeps away, or processes of this job that are too slow",
      cut.all(), cut.bytes, cut.time, cut.crowd);
}

}  // namespace psring
