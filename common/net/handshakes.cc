#include "common/net/handshakes.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/net/greeting.h"
#include "common/net/zmq_error.h"

namespace psring {
namespace {

// A ZeroMQ peer that hangs up on so many handshakes in a row, which takes a
// second, asks for something else: whoever finds out first hangs up.
constexpr int kHungUp = 6;
// And again after it has said so, as a port forward may just have come to life.
constexpr int kHungUpAgain = 2;
// Within which such a peer says what.
constexpr absl::Duration kGreeting = absl::Milliseconds(300);
// A dead process is noticed sooner.
constexpr absl::Duration kTellAfter = absl::Seconds(8);
constexpr char kKeyRemedy[] =
    "Every process of a job needs the same key: psring keygen makes one, and "
    "psring keygen --print | ssh HOST psring keygen --stdin copies it";
// Of a peer that has a key: nobody can copy such a one.
constexpr char kOwnKeyRemedy[] =
    ". A job that psring run or launch has started on one host has a key of "
    "its own: start it with --page, and psring top asks the page";

// Other hosts' processes read it, too, so it names this host.
std::string ReachRemedy() {
  return absl::StrCat(
      "Does a firewall, or a missing route, keep ", HostName(),
      " from it? A job's processes listen on ports that the system chooses, or "
      "on those of --ports (PSRING_PORTS); on hosts with several networks, "
      "--interface or --advertise (PSRING_INTERFACE, PSRING_ADVERTISE) says "
      "on which");
}

}  // namespace

Handshakes::Handshakes(zmq::context_t& context, zmq::socket_t& dealer,
                       std::string endpoint, bool keyed,
                       absl::Duration unreachable_after)
    : dealer_(dealer),
      endpoint_(std::move(endpoint)),
      keyed_(keyed),
      unreachable_after_(unreachable_after),
      events_(context, dealer,
              ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                  kHandshakeFailures) {
  Read();
}

Handshakes::~Handshakes() { SocketEvents::Stop(dealer_); }

bool Handshakes::Read() {
  bool anew = false;
  while (const auto event = events_.Next()) {
    if (event->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      hung_up_ = 0;
      greets_ = false;
      connected_ = true;
      missed_since_ = Time::InfiniteFuture();
      told_ = false;
      anew |= ++connections_ > 1;
    } else if (event->kind == ZMQ_EVENT_DISCONNECTED) {
      connected_ = false;
    } else {
      OnRefused(event->kind, event->value);
    }
  }
  return anew;
}

void Handshakes::CheckReach(Time now) {
  if (!MissesConnection() || !refused_.ok()) return;
  missed_since_ = std::min(missed_since_, now);
  const absl::Duration away = now - missed_since_;
  if (away < std::min(kTellAfter, unreachable_after_ / 2)) return;
  const std::string what =
      absl::StrCat("no connection to ", endpoint_, " for ",
                   absl::FormatDuration(absl::Trunc(away, absl::Seconds(1))));
  if (!std::exchange(told_, true)) {
    LogWarning("$0. $1. Trying on", what, ReachRemedy());
  }
  if (away >= unreachable_after_) {
    refused_ = absl::UnavailableError(absl::StrCat(what, ". ", ReachRemedy()));
  }
}

// After something has come that cannot be decrypted: ZeroMQ has given up.
absl::Status Handshakes::ConnectAnew() {
  const std::string what =
      absl::StrCat("the connection to ", endpoint_,
                   " was disturbed: what came cannot be decrypted");
  if (++hung_up_ >= kHungUp) return absl::UnavailableError(what);
  LogWarning("$0. Connecting anew", what);
  try {
    // It would not connect twice to what it holds.
    Uninterrupted([this] { dealer_.disconnect(endpoint_); });
    Uninterrupted([this] { dealer_.connect(endpoint_); });
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, what);
  }
}

// ZeroMQ gives up after all of these but a peer that hangs up, which may have
// died.
void Handshakes::OnRefused(uint16_t event, uint32_t reason) {
  const bool protocol = event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  bool mismatch =
      protocol && reason == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
  const bool other_protocol = protocol && !mismatch;
  if (!refused_.ok() || (other_protocol && !keyed_)) return;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
    if (connections_ > 0 || ++hung_up_ < kHungUp) return;
    hung_up_ = 0;
    const auto mechanism = MechanismAt(endpoint_, kGreeting);
    if (!mechanism.has_value()) {
      greets_ = false;
      return WarnOfSilence();
    }
    mismatch = (*mechanism == "CURVE") != keyed_;
    // It may have hung up for another reason.
    if (!mismatch && !keyed_) return;
    if (!mismatch && !greets_) {
      greets_ = true;
      hung_up_ = kHungUp - kHungUpAgain;
      return;
    }
  }
  // The peer has been there before, so it has the key.
  if (other_protocol && connections_ > 0) {
    refused_ = ConnectAnew();
    return;
  }
  std::string why = absl::StrCat("what listens at ", endpoint_);
  if (mismatch && keyed_) {
    absl::StrAppend(&why, " has no key, but this process has one. ", kKeyRemedy,
                    ". Or give this one --insecure too");
  } else if (mismatch) {
    absl::StrAppend(&why,
                    " asks for the job's key, but this process has none"
                    " (--key-file, PSRING_KEY_FILE). ",
                    kKeyRemedy, kOwnKeyRemedy);
  } else if (keyed_) {
    absl::StrAppend(&why, " refuses this process: its key is not the job's. ",
                    kKeyRemedy, kOwnKeyRemedy);
  } else {
    absl::StrAppend(&why, " talks to the workers of its job alone");
  }
  refused_ = absl::PermissionDeniedError(why);
}

// It may last until the job's processes are there: not every second.
void Handshakes::WarnOfSilence() const {
  static std::atomic<int> times = 0;
  if (times++ % 20 != 0) return;
  LogWarning(
      "what listens at $0 takes connections and greets nobody: a port forward "
      "with nothing behind it yet? Trying on",
      endpoint_);
}

}  // namespace psring
