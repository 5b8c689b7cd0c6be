// ZeroMQ's I/O threads, and by which keys their sockets are reached.
#ifndef PSRING_COMMON_NET_CONTEXT_H_
#define PSRING_COMMON_NET_CONTEXT_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/host_cores.h"
#include "common/net/address.h"
#include "common/net/doorkeeper.h"
#include "common/net/keys.h"
#include "zmq.hpp"

namespace psring {

// ZeroMQ's threads for a process that may use so many cores. ZeroMQ gives each
// new connection to the thread that has the fewest. One thread sends and
// receives about 8 Gbit/s at the same time, or 3 Gbit/s encrypted. A process
// with few cores needs them for training.
inline int IoThreads(int cores) { return std::clamp(cores / 4, 1, 4); }

// Outlives its sockets.
//
// Once secured, all sockets speak CURVE (RFC 26): encrypted, and with nobody
// who has not proven a key.
//   Control plane: the coordinator's and the members' pairs are made of the
//   job's secret, so that both ends know that the other has it.
//   Data plane: each context has a pair of its own. The members tell each other
//   the public keys through the coordinator; only workers of the job may
//   connect, each as its own rank.
// A job without a key keeps strangers out of its data plane the same way, with
// random tokens in place of keys (PLAIN, RFC 24). They travel in the clear:
// whoever reads the network, or joins the job, has them.
class Context {
 public:
  // Throws std::system_error where the system has no threads for it.
  explicit Context(int io_threads = IoThreads(HostCores()));
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // One of them, once, before any socket. After neither, everybody may connect
  // and say what it likes, as in some tests.
  absl::Status Secure(const Secret& secret);
  absl::Status UseTokens();
  // The first for a job that has a secret, else the other.
  absl::Status Protect(const std::optional<Secret>& secret) {
    return secret.has_value() ? Secure(*secret) : UseTokens();
  }

  // Before any socket: those that leave the port to the system take one of
  // these.
  void UsePorts(PortRange ports) { ports_ = ports; }

  // Before sockets that connect: whoever waits over them ends after `timeout`.
  // A missing connection is an error after half of that, before an error would
  // name a rank that waits, too (SocketOptions::unreachable_after).
  void ExpectWaitsOf(absl::Duration timeout) { waits_ = timeout; }
  absl::Duration expected_waits() const { return waits_; }

  bool secured() const { return proof_ == Proof::kKey; }

  // Whoever connects to a data socket of this context has to know it, and is
  // known by its own: kKeyBytes of a public key, or of a token. Empty: neither.
  std::string public_key() const;

  // From now on the workers of the job, and nobody else, may connect to data
  // sockets: their public keys by rank. Any thread.
  void AllowWorkers(const std::vector<std::string>& public_keys);

 private:
  friend class Socket;
  enum class Proof { kNone, kToken, kKey };

  absl::Status StartDoorkeeper();

  zmq::context_t context_;
  PortRange ports_;
  absl::Duration waits_ = absl::InfiniteDuration();
  Proof proof_ = Proof::kNone;
  KeyPair coordinator_, member_, own_;      // of a secured one
  std::string token_;                       // of one that uses tokens
  std::unique_ptr<Doorkeeper> doorkeeper_;  // null: Proof::kNone
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_CONTEXT_H_
