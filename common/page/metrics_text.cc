#include "common/page/metrics_text.h"

#include <cmath>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/cluster/process_names.h"
#include "common/page/process_state.h"

namespace psring {
namespace {

using proto::Figures;
using proto::ProcessView;
using Value = std::optional<double>;

enum class Whose { kAll, kWorkers, kServers };

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  Whose whose;
  Value (*of)(const ProcessView&);
};

const Figures& Of(const ProcessView& p) { return p.figures(); }

Value Number(int64_t value) { return static_cast<double>(value); }

constexpr Metric kMetrics[] = {
    {"psring_up", "gauge", "1 while the process is heard, 0 after.",
     Whose::kAll,
     [](const ProcessView& p) -> Value {
       return p.left() || IsSilent(p) ? 0 : 1;
     }},
    {"psring_step", "gauge", "Step at which the process is.", Whose::kAll,
     [](const ProcessView& p) { return Number(p.step()); }},
    {"psring_waiting_seconds", "gauge",
     "For how long it has been waiting for others.", Whose::kAll,
     [](const ProcessView& p) -> Value {
       return p.left() ? 0 : p.waiting_ms() / 1000.0;
     }},
    {"psring_silent_seconds", "gauge", "Since its last heartbeat.", Whose::kAll,
     [](const ProcessView& p) -> Value {
       return p.left() ? 0 : p.silent_ms() / 1000.0;
     }},
    {"psring_resident_memory_bytes", "gauge",
     "Memory that the process holds, shared memory included.", Whose::kAll,
     [](const ProcessView& p) { return Number(Of(p).resident_bytes()); }},
    {"psring_sent_bytes_total", "counter",
     "Bytes of gradients, parameters and their headers sent by sockets.",
     Whose::kAll,
     [](const ProcessView& p) { return Number(Of(p).bytes_sent()); }},
    {"psring_received_bytes_total", "counter",
     "Bytes of gradients, parameters and their headers received by sockets.",
     Whose::kAll,
     [](const ProcessView& p) { return Number(Of(p).bytes_received()); }},
    {"psring_steps_total", "counter", "Steps that the worker has made.",
     Whose::kWorkers,
     [](const ProcessView& p) { return Number(Of(p).steps()); }},
    {"psring_samples_total", "counter",
     "Training samples that the worker has computed.", Whose::kWorkers,
     [](const ProcessView& p) { return Number(Of(p).samples()); }},
    {"psring_compute_seconds_total", "counter",
     "Time of its steps in data, forward and backward.", Whose::kWorkers,
     [](const ProcessView& p) -> Value { return Of(p).compute_seconds(); }},
    {"psring_exposed_seconds_total", "counter",
     "Time of its steps in waiting for the exchange.", Whose::kWorkers,
     [](const ProcessView& p) -> Value { return Of(p).exposed_seconds(); }},
    {"psring_slowed_seconds_total", "counter",
     "Time of its steps in faults injected by --slow.", Whose::kWorkers,
     [](const ProcessView& p) -> Value { return Of(p).slowed_seconds(); }},
    {"psring_loss", "gauge", "Training loss of its last step.", Whose::kWorkers,
     [](const ProcessView& p) -> Value {
       return Of(p).has_loss() ? Value(Of(p).loss()) : std::nullopt;
     }},
    {"psring_test_accuracy", "gauge", "Accuracy at the last evaluation.",
     Whose::kWorkers,
     [](const ProcessView& p) -> Value {
       return Of(p).has_accuracy() ? Value(Of(p).accuracy()) : std::nullopt;
     }},
    {"psring_test_loss", "gauge", "Loss at the last evaluation.",
     Whose::kWorkers,
     [](const ProcessView& p) -> Value {
       return Of(p).has_test_loss() ? Value(Of(p).test_loss()) : std::nullopt;
     }},
    {"psring_updates_total", "counter",
     "Gradients of pieces of the model that the server has applied.",
     Whose::kServers,
     [](const ProcessView& p) { return Number(Of(p).updates()); }},
    {"psring_staleness_total", "counter",
     "Sum of their staleness, in updates by other workers.", Whose::kServers,
     [](const ProcessView& p) { return Number(Of(p).staleness_sum()); }},
    {"psring_staleness_max", "gauge", "Largest staleness so far.",
     Whose::kServers,
     [](const ProcessView& p) { return Number(Of(p).staleness_max()); }},
    {"psring_late_gradients_total", "counter",
     "Gradients of pieces that came after their step had closed.",
     Whose::kServers,
     [](const ProcessView& p) { return Number(Of(p).late_gradients()); }},
};

bool Has(const Metric& metric, const ProcessView& process) {
  // Before ranks are given, two processes would have the same labels.
  if (process.process().rank() < 0) return false;
  const bool worker = process.process().role() == proto::WORKER;
  return metric.whose == Whose::kAll ||
         (metric.whose == Whose::kWorkers) == worker;
}

std::string Escaped(const std::string& label) {
  return absl::StrReplaceAll(label,
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

// A NaN has a sign, which readers of the format do not take.
std::string ValueText(double value) {
  return std::isnan(value) ? "NaN" : absl::StrFormat("%.15g", value);
}

std::string Labels(const proto::Process& process) {
  return absl::StrCat("role=\"", NameOf(process.role()), "\",rank=\"",
                      process.rank(), "\"");
}

void AppendHead(const char* name, const char* type, const char* help,
                std::string* text) {
  absl::StrAppend(text, "# HELP ", name, " ", help, "\n# TYPE ", name, " ",
                  type, "\n");
}

void AppendJob(const JobState& state, std::string* text) {
  const proto::JobView& view = state.view();
  if (view.mode() != proto::MODE_UNSPECIFIED) {
    AppendHead("psring_job_info", "gauge", "The job's mode; always 1.", text);
    absl::StrAppend(text, "psring_job_info{mode=\"", NameOf(view.mode()),
                    "\"} 1\n");
  }
  AppendHead("psring_job_running", "gauge",
             "1 while the job runs; 0 before it is complete, and after.", text);
  absl::StrAppend(text, "psring_job_running ",
                  view.state() == proto::JobView::RUNNING ? 1 : 0, "\n");
  AppendHead("psring_job_seconds", "gauge",
             "Time since all processes had joined.", text);
  absl::StrAppendFormat(text, "psring_job_seconds %.15g\n", state.seconds());
}

}  // namespace

std::string MetricsText(const JobState& state) {
  std::string text;
  AppendJob(state, &text);
  AppendHead("psring_process_info", "gauge",
             "Where the process runs; always 1.", &text);
  for (const ProcessView& p : state.view().processes()) {
    if (p.process().rank() < 0) continue;
    absl::StrAppend(&text, "psring_process_info{", Labels(p.process()),
                    ",host=\"", Escaped(p.process().host()), "\",pid=\"",
                    p.process().pid(), "\"} 1\n");
  }
  for (const Metric& metric : kMetrics) {
    std::string lines;
    for (const ProcessView& p : state.view().processes()) {
      if (!Has(metric, p)) continue;
      const Value value = metric.of(p);
      if (!value.has_value()) continue;
      absl::StrAppend(&lines, metric.name, "{", Labels(p.process()), "} ",
                      ValueText(*value), "\n");
    }
    if (lines.empty()) continue;
    AppendHead(metric.name, metric.type, metric.help, &text);
    absl::StrAppend(&text, lines);
  }
  return text;
}

}  // namespace psring
