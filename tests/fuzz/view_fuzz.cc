// A job as whoever answers a look describes it: what the page and psring top
// make of it.
#include <string>
#include <utility>

#include "cli/top_text.h"
#include "common/clock.h"
#include "common/page/job_state.h"
#include "common/page/metrics_text.h"
#include "common/page/page_json.h"
#include "common/printable.h"
#include "nlohmann/json.hpp"
#include "protos/cluster.pb.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr int kMostLooks = 40;
constexpr int kLooksACheck = 8;
// Of texts, for each byte of a view and for each of its processes.
constexpr size_t kBytesPerByte = 16;
constexpr size_t kBytesPerProcess = 4096;
constexpr size_t kBytesOfJob = 1 << 20;  // its curves and marks

proto::JobView GoodView() {
  proto::JobView view;
  view.set_state(proto::JobView::RUNNING);
  view.set_mode(proto::PARAMETER_SERVER);
  view.set_num_servers(1);
  view.set_num_workers(2);
  for (int i = 0; i < 3; ++i) {
    proto::ProcessView& p = *view.add_processes();
    p.mutable_process()->set_role(i == 0 ? proto::PS : proto::WORKER);
    p.mutable_process()->set_rank(i == 0 ? 0 : i - 1);
    p.mutable_process()->set_host("a");
    p.mutable_process()->set_pid(100 + i);
    p.set_doing("computing");
    p.mutable_figures()->set_sync("bsp");
  }
  return view;
}

// A process's counts as they may be at another time.
void Advance(Bytes& input, proto::ProcessView& process) {
  proto::Figures& figures = *process.mutable_figures();
  const int64_t step = input.Integer();
  process.set_step(step);
  figures.set_steps(step);
  figures.set_samples(input.Integer());
  figures.set_updates(input.Integer());
  figures.set_staleness_sum(input.Integer());
  figures.set_bytes_sent(input.Integer());
  figures.set_exposed_seconds(input.Double());
  figures.set_loss(input.Double());
  figures.set_evaluations(input.Integer());
  proto::StepRecord& record = *figures.add_records();
  record.set_step(step);
  record.set_arrived_ns(input.Integer());
  record.set_went_on_ns(input.Integer());
}

// A view of its own, or the last one with changes.
bool Change(Bytes& input, proto::JobView& view) {
  switch (input.Below(4)) {
    case 0:
      return view.ParseFromString(input.Text());
    case 1:
      return view.MergeFromString(input.Text());
    case 2:
      if (view.processes_size() == 0) return false;
      Advance(input,
              *view.mutable_processes(input.Below(view.processes_size())));
      return true;
    default:
      view = GoodView();
      return true;
  }
}

void CheckTexts(const JobState& state) {
  const proto::JobView& view = state.view();
  const size_t limit =
      kBytesOfJob + kBytesPerByte * view.ByteSizeLong() +
      kBytesPerProcess * static_cast<size_t>(view.processes_size());
  Require(state.paces().size() == static_cast<size_t>(view.processes_size()),
          "every process has a pace");
  Seen nothing;
  const std::string page = ToJson(state, {}, nothing);
  Require(nlohmann::json::accept(page), "the page gets JSON");
  Require(page.size() <= limit, "the page's JSON is as long as the view");
  const std::string metrics = MetricsText(state);
  Require(metrics.size() <= limit, "metrics are as long as the view");
  Require(metrics.ends_with("\n"), "metrics are lines");
  const std::string table = TopText(state);
  Require(table.size() <= limit, "the table is as long as the view");
  unsigned char last = 0;
  for (const char c : Printable(table)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') ||
                         byte == 0x7f ||
                         (last == 0xc2 && byte >= 0x80 && byte < 0xa0);
    Require(!control, "nobody writes to a terminal what it does not show");
    last = byte;
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  proto::JobView over = GoodView();
  over.set_state(proto::JobView::OVER);
  over.set_result("worker 1 (host a, pid 102) has failed");
  over.mutable_processes(1)->set_left(true);
  over.mutable_processes(2)->set_silent_ms(5000);
  proto::JobView waits;
  waits.add_processes()->set_held_up_by("worker 1");
  waits.mutable_processes(0)->set_waits_at("the exchange of a step");
  proto::JobView forming = GoodView();
  forming.set_state(proto::JobView::FORMING);
  forming.mutable_processes(1)->mutable_process()->set_rank(-1);
  Input steps;
  steps.Number(0, 2).Byte(3);
  for (int step = 1; step < 10; ++step) {
    for (int process = 0; process < 3; ++process) {
      const int64_t ns = step * 1000 + process * 300;
      steps.Number(2000, 2).Byte(2).Byte(process).Integer(4 * step);
      steps.Integer(256 * step).Integer(step).Integer(2 * step);
      steps.Integer(1000 * step).Double(0.1 * step).Double(1.0 / step);
      steps.Integer(step / 3).Integer(ns).Integer(ns + 500);
    }
  }
  const auto of = [](int kind, const proto::JobView& view) {
    return Input()
        .Number(0, 2)
        .Byte(3)
        .Number(1000, 2)
        .Byte(kind)
        .Text(view.SerializeAsString())
        .bytes();
  };
  proto::JobView many;
  many.set_state(proto::JobView::RUNNING);
  for (int i = 0; i < 4000; ++i) many.add_processes();
  many.mutable_processes(0)->mutable_process()->set_host(
      std::string(8000, 'h'));
  return {of(0, forming), of(0, over),   of(1, waits),
          of(0, many),    steps.bytes(), steps.bytes() + of(0, over)};
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  JobState state;
  proto::JobView view;
  Time now = Time::FromNanos(1'000'000'000);
  for (int looks = 0; looks < fuzz::kMostLooks && !input.empty(); ++looks) {
    now += absl::Milliseconds(static_cast<int64_t>(input.Number(2)));
    if (!fuzz::Change(input, view)) break;
    state.Take(now, view);
    if (looks % fuzz::kLooksACheck == 0) fuzz::CheckTexts(state);
  }
  fuzz::CheckTexts(state);
  return 0;
}
