#include "common/page/process_state.h"

#include "absl/time/time.h"
#include "common/cluster/participants.h"

namespace psring {
bool IsSilent(const proto::ProcessView& process) {
  return !process.left() &&
         process.silent_ms() > absl::ToInt64Milliseconds(kSilentAfter);
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
