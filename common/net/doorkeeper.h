// Who may connect to this process. Answers what ZeroMQ asks (RFC 27, ZAP) about
// every connection that has come so far in its handshake as to show a key or a
// token, looks after those that have not (visitors.h), and bounds how many of
// them come in a second (accept_limiter.h). On a thread of its own, which runs
// before anything listens and until nothing does: where nobody answers, ZeroMQ
// lets in everybody.
#ifndef PSRING_COMMON_NET_DOORKEEPER_H_
#define PSRING_COMMON_NET_DOORKEEPER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "common/net/accept_limiter.h"
#include "common/net/visitors.h"
#include "zmq.hpp"

namespace psring {

// What a listening socket calls itself here.
inline constexpr char kControlDomain[] = "control";
inline constexpr char kDataDomain[] = "data";

// Connections that a listener has refused in their handshake, by why.
struct RefusedHandshakes {
  std::atomic<int64_t> other_key = 0;
  std::atomic<int64_t> no_key = 0;     // where the listener has one
  std::atomic<int64_t> needs_key = 0;  // where it has none
};

class Doorkeeper {
 public:
  // What a peer has to show.
  struct Locks {
    std::string member_key;  // control domain, CURVE; empty: there is no key
    std::string token;       // data domain, PLAIN: the listener's
  };

  // `context` outlives it.
  static absl::StatusOr<std::unique_ptr<Doorkeeper>> Start(
      zmq::context_t& context, Locks locks);
  ~Doorkeeper();

  // Whom the data domain lets in from now on: public keys, or tokens, by rank.
  // A message of theirs says which rank it was (Frame::proven_rank). Any
  // thread.
  void AllowWorkers(const std::vector<std::string>& keys);

  // From now on it looks after the connections to `listener`, a ROUTER that is
  // not bound yet and belongs to the calling thread; until
  // SocketEvents::Stop(listener). `keyed`: its peers have to show a
  // key or a token. Otherwise each needs a Vouch. Throws what ZeroMQ does.
  std::shared_ptr<RefusedHandshakes> Watch(zmq::socket_t& listener, bool keyed);

  // Whoever is connected by `fd`, ZeroMQ's descriptor, is known, and may send
  // more at once. Any thread.
  void Vouch(int fd);

 private:
  struct Listener;

  Doorkeeper(zmq::context_t& context, Locks locks);

  void Run(zmq::socket_t& questions);
  void TakeOrders(std::vector<Listener>& listeners);
  void AnswerQuestion(zmq::socket_t& questions);
  // Of those that may come in with these frames of a question; empty: nobody.
  std::string UserOf(const std::vector<std::string>& question);
  // False: it listens no more.
  bool OnEvents(Listener& listener);
  // A listener has accepted the connection `fd`.
  void OnArrival(int fd, const Listener& listener);
  void TellOfVisitors();
  // Where no more connections can be accepted.
  void TellOfFiles(int newest);
  // Where somebody opens more than are accepted.
  void TellOfFlood();

  zmq::context_t& context_;
  const Locks locks_;
  const int wake_fd_;
  std::atomic<bool> stop_ = false;
  Mutex mutex_;
  std::map<std::string, int, std::less<>> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Listener> new_listeners_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> vouched_ ABSL_GUARDED_BY(mutex_);
  // Its thread's.
  Visitors visitors_;
  AcceptLimiter limiter_;
  int64_t told_at_ = 1;
  Time tell_of_files_ = Time::InfinitePast();
  Time tell_of_flood_ = Time::InfinitePast();
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_DOORKEEPER_H_
