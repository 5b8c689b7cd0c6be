#include "common/page/process_state.h"

namespace psring {
namespace {

// Heartbeats come once a second.
constexpr int64_t kSilentMs = 2500;

}  // namespace

bool IsSilent(const proto::ProcessView& process) {
  return !process.left() && process.silent_ms() > kSilentMs;
}

const char* StateOf(const proto::ProcessView& process) {
  if (process.left()) return "left";
  if (IsSilent(process)) return "silent";
  return process.doing().empty() ? "waits" : "works";
}

std::string DoingOf(const proto::ProcessView& process) {
  if (process.left()) return "";
  return process.doing().empty() ? process.waits_at() : process.doing();
}

}  // namespace psring
