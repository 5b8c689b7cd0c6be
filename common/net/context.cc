#include "common/net/context.h"

#include <malloc.h>

#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace psring {
namespace {

// As many as ZeroMQ allows. A connection takes three, so that its default of
// 1,023 ends a job of a few hundred processes; the limit of open files remains.
constexpr int kMaxSockets = 65535;

// ZeroMQ allocates every frame that comes. The allocator would give the memory
// of large ones back to the system and ask for it again, whose price is a page
// fault for every 4 KiB: a quarter of the time of a 25 MB exchange over TCP.
void KeepFreedMemory() {
  static const int kept = mallopt(M_MMAP_THRESHOLD, 32 << 20) &
                          mallopt(M_TRIM_THRESHOLD, 256 << 20);
  static_cast<void>(kept);
}

// ZeroMQ starts its threads with the first socket. It ends the program where it
// cannot, and does not say that it was for a thread; so it is tried first.
void StartThreads(zmq::context_t& context, int count) {
  Mutex together;
  std::vector<std::jthread> threads;
  {
    const MutexLock hold(&together);
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&together] { const MutexLock lock(&together); });
    }
  }
  threads.clear();
  try {
    const zmq::socket_t first(context, zmq::socket_type::pair);
  } catch (const zmq::error_t&) {  // the first that is used tells why
  }
}

}  // namespace

Context::Context(int io_threads) : context_(io_threads, kMaxSockets) {
  KeepFreedMemory();
  StartThreads(context_, io_threads + 1);  // one of them closes sockets
}

Context::~Context() {
  doorkeeper_.reset();
  context_.close();
}

absl::Status Context::Secure(const Secret& secret) {
  proof_ = Proof::kKey;
  coordinator_ = CoordinatorPair(secret);
  member_ = MemberPair(secret);
  own_ = RandomPair();
  return StartDoorkeeper();
}

absl::Status Context::UseTokens() {
  proof_ = Proof::kToken;
  token_ = RandomToken();
  return StartDoorkeeper();
}

absl::Status Context::StartDoorkeeper() {
  Doorkeeper::Locks locks;
  if (secured()) locks.member_key = std::string(member_.public_key.view());
  locks.token = token_;
  auto doorkeeper = Doorkeeper::Start(context_, std::move(locks));
  if (!doorkeeper.ok()) return doorkeeper.status();
  doorkeeper_ = *std::move(doorkeeper);
  return absl::OkStatus();
}

std::string Context::public_key() const {
  return secured() ? std::string(own_.public_key.view()) : token_;
}

void Context::AllowWorkers(const std::vector<std::string>& public_keys) {
  if (doorkeeper_ != nullptr) doorkeeper_->AllowWorkers(public_keys);
}

}  // namespace psring
