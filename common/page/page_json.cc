#include "common/page/page_json.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include "common/cluster/process_names.h"
#include "common/page/process_state.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

using nlohmann::json;

// Five digits are more than a picture shows.
json Short(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale =
      std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
  const double rounded = std::round(value * scale) / scale;
  return std::isfinite(rounded) ? json(rounded) : json(value);
}

json Short(const std::optional<double>& value) {
  return value.has_value() ? Short(*value) : json();
}

// The names of those that are not, and so null.
json NotFinite(
    std::initializer_list<std::pair<const char*, std::optional<double>>>
        figures) {
  json names = json::array();
  for (const auto& [name, value] : figures) {
    if (value.has_value() && !std::isfinite(*value)) names.push_back(name);
  }
  return names;
}

json ToJson(const JobPoint& p) {
  const auto paced = [&p](double value) {
    return p.paced ? Short(value) : json();
  };
  return {{"seconds", Short(p.seconds)},
          {"step", p.step},
          {"loss", Short(p.loss)},
          {"not_finite", NotFinite({{"loss", p.loss}})},
          {"samples_per_second", paced(p.samples_per_second)},
          {"steps_per_second", paced(p.steps_per_second)},
          {"compute_s", paced(p.compute_s)},
          {"exposed_s", paced(p.exposed_s)},
          {"waiting_s", paced(p.waiting_s)},
          {"slowed_s", paced(p.slowed_s)},
          {"staleness", p.staleness > 0 ? Short(p.staleness) : json()},
          {"sent_per_second", paced(p.sent_per_second)},
          {"received_per_second", paced(p.received_per_second)},
          {"resident_bytes", p.resident_bytes}};
}

json PointsOf(const JobState& state, Seen& seen) {
  if (seen.thinned != state.thinned()) {
    seen.thinned = state.thinned();
    seen.points = seen.evaluations = 0;
  }
  json points = json::array(), evaluations = json::array();
  for (size_t i = seen.points; i < state.points().size(); ++i) {
    points.push_back(ToJson(state.points()[i]));
  }
  for (size_t i = seen.evaluations; i < state.evaluations().size(); ++i) {
    const JobEvaluation& e = state.evaluations()[i];
    evaluations.push_back(
        {{"seconds", Short(e.seconds)},
         {"step", e.step},
         {"accuracy", Short(e.accuracy)},
         {"test_loss", Short(e.test_loss)},
         {"not_finite",
          NotFinite({{"accuracy", e.accuracy}, {"test_loss", e.test_loss}})}});
  }
  json curves = {{"first_point", seen.points},
                 {"points", std::move(points)},
                 {"first_evaluation", seen.evaluations},
                 {"evaluations", std::move(evaluations)}};
  seen.points = state.points().size();
  seen.evaluations = state.evaluations().size();
  return curves;
}

json ToJson(const std::vector<EarlierJob::Value>& values) {
  json pairs = json::array();
  for (const EarlierJob::Value& v : values) {
    pairs.push_back({Short(v.seconds), Short(v.value)});
  }
  return pairs;
}

// With the earlier jobs only where there are new ones.
json ToJson(const JobSeries& series, Seen& seen) {
  json shown = {{"job", series.jobs}, {"title", series.title}};
  if (seen.earlier == series.earlier.size()) return shown;
  seen.earlier = series.earlier.size();
  json& earlier = shown["earlier"] = json::array();
  for (const EarlierJob& job : series.earlier) {
    earlier.push_back({{"name", job.name},
                       {"losses", ToJson(job.losses)},
                       {"accuracies", ToJson(job.accuracies)},
                       {"test_losses", ToJson(job.test_losses)}});
  }
  return shown;
}

json ToJson(const proto::ProcessView& process, const Pace& pace) {
  const proto::Figures& figures = process.figures();
  const bool worker = process.process().role() == proto::WORKER;
  json shown = {{"role", NameOf(process.process().role())},
                {"rank", process.process().rank()},
                {"host", process.process().host()},
                {"pid", process.process().pid()},
                {"state", StateOf(process)},
                {"doing", DoingOf(process)},
                {"step", process.step()},
                {"silent_s", Short(process.silent_ms() / 1000.0)},
                {"waiting_s", Short(process.waiting_ms() / 1000.0)},
                {"waits_for", process.held_up_by()},
                {"bytes_sent", figures.bytes_sent()},
                {"bytes_received", figures.bytes_received()},
                {"sent_per_second", Short(pace.sent_per_second)},
                {"received_per_second", Short(pace.received_per_second)},
                {"resident_bytes", figures.resident_bytes()},
                {"last_word", figures.last_word()}};
  if (worker) {
    shown["loss"] = figures.has_loss() ? Short(figures.loss()) : json();
    shown["samples"] = figures.samples();
    shown["samples_per_second"] = Short(pace.samples_per_second);
    shown["steps_per_second"] = Short(pace.steps_per_second);
    shown["compute_s"] = Short(pace.compute_s);
    shown["exposed_s"] = Short(pace.exposed_s);
    shown["slowed_s"] = Short(pace.slowed_s);
  } else {
    shown["updates"] = figures.updates();
    shown["staleness"] = Short(pace.staleness);
    shown["staleness_max"] = figures.staleness_max();
    shown["late_gradients"] = figures.late_gradients();
  }
  return shown;
}

const char* NameOf(proto::JobView::State state) {
  switch (state) {
    case proto::JobView::RUNNING:
      return "running";
    case proto::JobView::OVER:
      return "over";
    default:
      return "forming";
  }
}

}  // namespace

std::string ToJson(const JobState& state, const JobSeries& series, Seen& seen) {
  const proto::JobView& view = state.view();
  if (seen.jobs != series.jobs) {
    seen = {.jobs = series.jobs, .earlier = seen.earlier};
  }
  json processes = json::array(), marks = json::array();
  for (int i = 0; i < view.processes_size(); ++i) {
    processes.push_back(ToJson(view.processes(i), state.paces()[i]));
  }
  for (const JobMark& mark : state.marks()) {
    marks.push_back({{"seconds", Short(mark.seconds)},
                     {"step", mark.step},
                     {"text", mark.text},
                     {"fault", mark.fault}});
  }
  const bool has_mode = view.mode() != proto::MODE_UNSPECIFIED;
  json job = {{"state", NameOf(view.state())},
              {"result", view.result()},
              {"mode", has_mode ? json(NameOf(view.mode())) : json()},
              {"sync", state.sync()},
              {"servers", view.num_servers()},
              {"workers", view.num_workers()},
              {"seconds", std::round(state.seconds() * 1000) / 1000},
              {"total_steps", state.total_steps()},
              {"now", state.now().has_value() ? ToJson(*state.now()) : json()},
              {"curves", PointsOf(state, seen)},
              {"marks", std::move(marks)},
              {"straggler",
               {{"who", state.straggler().who},
                {"share", Short(state.straggler().share)}}},
              {"processes", std::move(processes)}};
  if (series.jobs > 0) job["series"] = ToJson(series, seen);
  return job.dump(-1, ' ', /*ensure_ascii=*/true,
                  json::error_handler_t::replace);
}

}  // namespace psring
