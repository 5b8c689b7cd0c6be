// common/net/shm_arena.h, common/net/doorbell.h: a process of the job says that
// its memory lies anywhere.
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "common/net/doorbell.h"
#include "common/net/shm_arena.h"
#include "protos/cluster.pb.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

ShmArena& Arena() {
  static ShmArena* const arena = ShmArena::Create(1 << 16)->release();
  return *arena;
}

// What is true of the arena; the fuzzer then changes it.
proto::SharedMemory AddressOf(Bytes& input) {
  proto::SharedMemory address = Arena().address();
  switch (input.Below(6)) {
    case 0:
      break;
    case 1:
      address.set_pid(input.Integer());
      break;
    case 2:
      address.set_fd(static_cast<int>(input.Integer()));
      break;
    case 3:
      address.set_size_bytes(input.Integer());
      break;
    case 4:
      address.set_nonce(input.Number(8));
      break;
    default:
      address.MergeFromString(input.Rest());
  }
  return address;
}

void Map(const proto::SharedMemory& address) {
  const auto mapped = ShmArena::Map(address);
  if (!mapped.ok()) return RequireReason(mapped.status());
  Require(address.nonce() == Arena().address().nonce() &&
              (*mapped)->size_bytes() == Arena().size_bytes(),
          "it is the arena");
  const int64_t last = (*mapped)->size_bytes() - 1;
  for (const int64_t at : {int64_t{0}, last}) {
    ++Arena().data()[at];
    Require((*mapped)->data()[at] == Arena().data()[at],
            "both see the same memory, to its end");
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {Input().Byte(0).bytes()};
  for (const int field : {1, 2, 3}) {
    for (const int64_t value :
         {int64_t{-1}, int64_t{1}, std::numeric_limits<int64_t>::max()}) {
      seeds.push_back(Input().Byte(field).Integer(value).bytes());
    }
  }
  seeds.push_back(Input().Byte(4).Number(7, 8).bytes());
  proto::SharedMemory address;
  address.add_doorbell_fds(0);
  address.add_doorbell_fds(1 << 30);
  seeds.push_back(Input().Byte(5).Rest(address.SerializeAsString()).bytes());
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const proto::SharedMemory address = fuzz::AddressOf(input);
  fuzz::Map(address);
  for (const int fd : address.doorbell_fds()) {
    const auto button = DoorbellButton::Open(address.pid(), fd);
    if (!button.ok()) fuzz::RequireReason(button.status());
  }
  return 0;
}
