#include "common/page/clean_view.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/cluster/figures.h"

namespace psring {
namespace {

// More than any job has.
constexpr int kMaxProcesses = 1 << 13;
constexpr int64_t kMaxCount = int64_t{1} << 60;

int64_t Count(int64_t count) {
  return std::clamp<int64_t>(count, 0, kMaxCount);
}

void Clean(proto::ProcessView& p) {
  p.mutable_process()->set_host(CleanWord(p.process().host()));
  p.set_step(Count(p.step()));
  p.set_doing(CleanWord(p.doing()));
  p.set_still_ms(Count(p.still_ms()));
  p.set_silent_ms(Count(p.silent_ms()));
  p.set_waits_at(CleanWord(p.waits_at()));
  p.set_waiting_ms(Count(p.waiting_ms()));
  p.set_held_up_by(CleanWord(p.held_up_by()));
  *p.mutable_figures() = CleanFigures(std::move(*p.mutable_figures()));
}

}  // namespace

proto::JobView CleanView(proto::JobView view) {
  view.set_result(CleanWord(view.result()));
  view.set_num_servers(std::clamp(view.num_servers(), 0, kMaxProcesses));
  view.set_num_workers(std::clamp(view.num_workers(), 0, kMaxProcesses));
  if (view.processes_size() > kMaxProcesses) {
    view.mutable_processes()->DeleteSubrange(
        kMaxProcesses, view.processes_size() - kMaxProcesses);
  }
  for (proto::ProcessView& process : *view.mutable_processes()) {
    Clean(process);
  }
  return view;
}

}  // namespace psring
