#include "common/page/job_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/cluster/host_of.h"
#include "common/cluster/process_names.h"
#include "common/page/clean_view.h"
#include "common/page/process_state.h"

namespace psring {
namespace {

// A pace is measured over so long, or longer: until there are some steps.
constexpr absl::Duration kPaceInterval = absl::Seconds(3);
constexpr int64_t kPaceSteps = 2;
constexpr size_t kStepsKept = 64;  // of each worker
// With many workers it is most of the work here.
constexpr int64_t kLooksAnExplanation = 4;
constexpr int kMaxRank = 1 << 16;
// Who is called a straggler: so much of all waiting is for it, and waiting is
// so much of a step.
constexpr double kMostOfWaiting = 0.6;
constexpr double kWaitingThatCounts = 0.05;

bool IsWorker(const proto::ProcessView& p) {
  return p.process().role() == proto::WORKER;
}

std::pair<int, int> KeyOf(const proto::ProcessView& p) {
  return {static_cast<int>(p.process().role()), p.process().rank()};
}

bool IsInfinite(const proto::ProcessView& p) {
  return p.figures().has_loss() && !std::isfinite(p.figures().loss());
}

double Ratio(double a, double b) { return b > 0 ? std::max(a, 0.0) / b : 0; }

Pace PaceOf(const proto::Figures& was, const proto::Figures& is, double dt) {
  const auto steps = static_cast<double>(is.steps() - was.steps());
  const auto updates = static_cast<double>(is.updates() - was.updates());
  const auto rate = [dt](int64_t a, int64_t b) {
    return Ratio(static_cast<double>(b - a), dt);
  };
  return {
      .steps_per_second = Ratio(steps, dt),
      .samples_per_second = rate(was.samples(), is.samples()),
      .compute_s = Ratio(is.compute_seconds() - was.compute_seconds(), steps),
      .exposed_s = Ratio(is.exposed_seconds() - was.exposed_seconds(), steps),
      .catch_up_s =
          Ratio(is.catch_up_seconds() - was.catch_up_seconds(), steps),
      .slowed_s = Ratio(is.slowed_seconds() - was.slowed_seconds(), steps),
      .sent_per_second = rate(was.bytes_sent(), is.bytes_sent()),
      .received_per_second = rate(was.bytes_received(), is.bytes_received()),
      .updates_per_second = Ratio(updates, dt),
      .staleness =
          Ratio(static_cast<double>(is.staleness_sum() - was.staleness_sum()),
                updates),
  };
}

JobPoint MeanOf(const std::vector<JobPoint>& points) {
  JobPoint mean;
  double loss = 0;
  int with_loss = 0;
  for (const JobPoint& p : points) {
    if (p.loss.has_value()) loss += *p.loss, ++with_loss;
    const auto part = 1.0 / static_cast<double>(points.size());
    mean.samples_per_second += part * p.samples_per_second;
    mean.steps_per_second += part * p.steps_per_second;
    mean.compute_s += part * p.compute_s;
    mean.exposed_s += part * p.exposed_s;
    mean.waiting_s += part * p.waiting_s;
    mean.slowed_s += part * p.slowed_s;
    mean.staleness += part * p.staleness;
    mean.sent_per_second += part * p.sent_per_second;
    mean.received_per_second += part * p.received_per_second;
    mean.resident_bytes = std::max(mean.resident_bytes, p.resident_bytes);
  }
  mean.seconds = points.back().seconds;
  mean.step = points.back().step;
  mean.paced = points.back().paced;
  if (with_loss > 0) mean.loss = loss / with_loss;
  return mean;
}

const proto::ProcessView* Find(const proto::JobView& view,
                               const proto::ProcessView& process) {
  for (const proto::ProcessView& p : view.processes()) {
    if (KeyOf(p) == KeyOf(process)) return &p;
  }
  return nullptr;
}

// A coordinator's view of a job that it has failed to form has none.
bool HasRanks(const proto::JobView& view) {
  return std::all_of(view.processes().begin(), view.processes().end(),
                     [&](const proto::ProcessView& p) {
                       return p.process().rank() >= 0 &&
                              p.process().rank() <= kMaxRank;
                     });
}

}  // namespace

void JobState::Take(Time now, const proto::JobView& view) {
  const proto::JobView before = std::move(view_);
  view_ = CleanView(view);
  ++looks_;
  paces_.assign(view_.processes_size(), Pace());
  if (view_.state() == proto::JobView::FORMING || !HasRanks(view_)) return;
  if (complete_ == Time()) complete_ = now;
  if (before.state() != proto::JobView::OVER) {
    seconds_ = absl::ToDoubleSeconds(now - complete_);
  }
  MeasurePaces(now);
  TakeRecords();
  if (looks_ % kLooksAnExplanation == 0) ExplainWaits();
  TakeEvaluations(before);
  MarkChanges(before);
  if (view_.state() == proto::JobView::RUNNING) {
    now_ = PointNow();
    Keep(*now_);
  } else if (now_.has_value()) {  // its pace was that of before
    now_->step = static_cast<double>(Step());
    now_->loss = Loss();
  }
}

void JobState::MeasurePaces(Time now) {
  paces_.clear();
  for (const proto::ProcessView& process : view_.processes()) {
    const auto [found, is_new] = measured_.try_emplace(KeyOf(process));
    Measured& last = found->second;
    const proto::Figures& figures = process.figures();
    const double dt = absl::ToDoubleSeconds(now - last.when);
    const int64_t steps = figures.steps() - last.figures.steps();
    if (is_new || (IsWorker(process) && last.figures.steps() == 0)) {
      // What lies before the first step is no step's.
      last.when = now;
      last.figures = figures;
    } else if (now - last.when >= kPaceInterval &&
               (!IsWorker(process) || steps >= kPaceSteps)) {
      last.pace = PaceOf(last.figures, figures, dt);
      last.when = now;
      last.figures = figures;
    } else if (IsWorker(process) && steps < kPaceSteps) {
      // At most as fast as if the next step were made now.
      const double most = Ratio(kPaceSteps, dt);
      const double slower = last.pace.steps_per_second > most
                                ? most / last.pace.steps_per_second
                                : 1.0;
      Pace pace = last.pace;
      pace.steps_per_second *= slower;
      pace.samples_per_second *= slower;
      paces_.push_back(pace);
      continue;
    }
    paces_.push_back(last.pace);
  }
}

void JobState::TakeRecords() {
  for (const proto::ProcessView& process : view_.processes()) {
    if (!IsWorker(process)) continue;
    if (process.left()) {
      steps_.erase(process.process().rank());
      continue;
    }
    WorkerSteps& steps = steps_[process.process().rank()];
    for (const proto::StepRecord& record : process.figures().records()) {
      const int64_t took = record.went_on_ns() - record.arrived_ns();
      if (took <= 0) continue;
      WorkerStep& step = steps[record.step()];
      step.whole = took;
      step.arrived = record.arrived_ns();
      step.went_on = record.went_on_ns();
    }
    while (steps.size() > kStepsKept) steps.erase(steps.begin());
  }
}

// Of steps of which every worker has told, and in ssp of those that they wait
// for, too; others explain nothing.
void JobState::ExplainWaits() {
  std::vector<WorkerSteps> workers;
  std::map<int64_t, int> told;
  for (const auto& [rank, steps] : steps_) {
    for (const auto& [number, step] : steps) ++told[number];
  }
  const auto all_told = [&](int64_t number) {
    const auto found = told.find(number);
    return found != told.end() &&
           found->second == static_cast<int>(steps_.size());
  };
  // Explain() names workers by place.
  workers.resize(steps_.empty() ? 0 : steps_.rbegin()->first + 1);
  SyncRule rule;
  for (const proto::ProcessView& process : view_.processes()) {
    if (!IsWorker(process) || process.figures().sync().empty()) continue;
    rule = {process.figures().sync(), process.figures().staleness_bound(),
            std::min<int>(process.figures().backup_workers(),
                          static_cast<int>(workers.size()))};
  }
  for (const auto& [rank, steps] : steps_) {
    for (const auto& [number, step] : steps) {
      if (!all_told(number)) continue;
      WorkerStep& known = workers[rank][number] = step;
      if (!all_told(number - rule.staleness)) known.whole = 0;
    }
  }
  const Explanation explained = Explain(workers, rule);
  waiting_share_ = Ratio(explained.total.waiting,
                         explained.total.waiting + explained.total.exposed);
  straggler_ = {};
  if (explained.late.empty() || explained.total.waiting <= 0) return;
  const double share = explained.late[0].seconds / explained.total.waiting;
  const JobPoint point = PointNow();
  const double step =
      point.compute_s + point.exposed_s + point.waiting_s + point.slowed_s;
  if (!point.paced || share < kMostOfWaiting ||
      point.waiting_s < kWaitingThatCounts * step) {
    return;
  }
  for (const proto::ProcessView& process : view_.processes()) {
    const std::string name = absl::StrCat("worker ", process.process().rank());
    if (!IsWorker(process) || name != explained.late[0].who) continue;
    straggler_ = {Describe(process.process()), share};
  }
}

std::string JobState::sync() const {
  for (const proto::ProcessView& process : view_.processes()) {
    const proto::Figures& figures = process.figures();
    if (figures.sync().empty()) continue;
    return figures.sync() == "ssp" && figures.staleness_bound() > 0
               ? absl::StrCat("ssp:", figures.staleness_bound())
               : figures.sync();
  }
  return "";
}

int64_t JobState::total_steps() const {
  int64_t total = 0;
  for (const proto::ProcessView& process : view_.processes()) {
    total = std::max(total, process.figures().total_steps());
  }
  return total;
}

int64_t JobState::Step() const {
  int64_t step = 0;
  for (const proto::ProcessView& process : view_.processes()) {
    if (IsWorker(process)) step = std::max(step, process.step());
  }
  return step;
}

std::optional<double> JobState::Loss() const {
  double sum = 0;
  int number = 0;
  for (const proto::ProcessView& process : view_.processes()) {
    if (!IsWorker(process) || !process.figures().has_loss()) continue;
    sum += process.figures().loss();
    ++number;
  }
  if (number == 0) return std::nullopt;
  return sum / number;
}

JobPoint JobState::PointNow() const {
  JobPoint point;
  point.seconds = seconds_;
  point.step = static_cast<double>(Step());
  point.loss = Loss();
  double workers = 0, exposed = 0, catch_up = 0, updates = 0;
  std::set<std::pair<HostId, int32_t>> counted;  // a server may be threads
  for (int i = 0; i < view_.processes_size(); ++i) {
    const proto::ProcessView& process = view_.processes(i);
    if (process.left()) continue;
    const Pace& pace = paces_[i];
    const proto::Figures& figures = process.figures();
    point.sent_per_second += pace.sent_per_second;
    point.received_per_second += pace.received_per_second;
    const bool is_new =
        counted.insert({HostOf(process.process()), process.process().pid()})
            .second;
    if (is_new) {
      point.resident_bytes += static_cast<double>(figures.resident_bytes());
    }
    point.staleness += pace.staleness * pace.updates_per_second;
    updates += pace.updates_per_second;
    // Of the others, no pace is known yet.
    if (!IsWorker(process) || pace.steps_per_second <= 0) continue;
    ++workers;
    point.paced = true;
    point.samples_per_second += pace.samples_per_second;
    point.steps_per_second += pace.steps_per_second;
    point.compute_s += pace.compute_s;
    exposed += pace.exposed_s;
    catch_up += pace.catch_up_s;
    point.slowed_s += pace.slowed_s;
  }
  point.steps_per_second = Ratio(point.steps_per_second, workers);
  point.compute_s = Ratio(point.compute_s, workers);
  point.waiting_s =
      Ratio((exposed - catch_up) * waiting_share_ + catch_up, workers);
  point.exposed_s = Ratio(exposed, workers) - point.waiting_s;
  point.slowed_s = Ratio(point.slowed_s, workers);
  point.staleness = Ratio(point.staleness, updates);
  return point;
}

void JobState::Keep(const JobPoint& point) {
  gathered_.push_back(point);
  if (gathered_.size() < looks_a_point_) return;
  points_.push_back(MeanOf(gathered_));
  gathered_.clear();
  if (points_.size() < kMaxPoints) return;
  std::vector<JobPoint> half;
  for (size_t i = 0; i + 1 < points_.size(); i += 2) {
    half.push_back(MeanOf({points_[i], points_[i + 1]}));
  }
  points_ = std::move(half);
  looks_a_point_ *= 2;
  ++thinned_;
}

// The first to tell of an evaluation does, until it leaves: the others tell of
// the same ones, perhaps some looks later.
bool JobState::SpeaksForAll(const proto::ProcessView& process) const {
  if (!teller_.has_value() || KeyOf(process) == *teller_) return true;
  if (process.figures().evaluations() <= num_told_) return false;
  return std::none_of(view_.processes().begin(), view_.processes().end(),
                      [&](const proto::ProcessView& other) {
                        return KeyOf(other) == *teller_ && !other.left();
                      });
}

void JobState::TakeEvaluations(const proto::JobView& before) {
  for (const proto::ProcessView& process : view_.processes()) {
    const proto::Figures& figures = process.figures();
    const proto::ProcessView* was = Find(before, process);
    const int64_t known = was == nullptr ? 0 : was->figures().evaluations();
    if (figures.evaluations() <= known || !SpeaksForAll(process)) continue;
    teller_ = KeyOf(process);
    num_told_ = figures.evaluations();
    JobEvaluation evaluation = {seconds_, figures.evaluated_step(), {}, {}};
    if (figures.has_accuracy()) evaluation.accuracy = figures.accuracy();
    if (figures.has_test_loss()) evaluation.test_loss = figures.test_loss();
    evaluations_.push_back(evaluation);
    break;
  }
  if (evaluations_.size() < kMaxEvaluations) return;
  std::vector<JobEvaluation> half;
  for (size_t i = 1; i < evaluations_.size(); i += 2) {
    half.push_back(evaluations_[i]);
  }
  evaluations_ = std::move(half);
  ++thinned_;
}

void JobState::Mark(std::string text, bool fault) {
  marks_.push_back({seconds_, Step(), std::move(text), fault});
  if (marks_.size() > kMaxMarks) marks_.pop_front();
}

void JobState::MarkChanges(const proto::JobView& before) {
  if (before.state() == proto::JobView::OVER) return;
  if (before.state() == proto::JobView::FORMING) {
    Mark("all processes have joined", /*fault=*/false);
  } else {
    MarkProcesses(before);
  }
  for (const proto::ProcessView& process : view_.processes()) {
    const proto::ProcessView* was = Find(before, process);
    if (!IsInfinite(process) || (was != nullptr && IsInfinite(*was))) continue;
    Mark(absl::StrCat("the loss of ", Describe(process.process()),
                      " is not finite"),
         /*fault=*/true);
  }
  if (view_.state() != proto::JobView::OVER) return;
  const bool failed = !view_.result().empty();
  Mark(failed ? absl::StrCat("the job has failed: ", view_.result())
              : "the job has ended in peace",
       failed);
}

void JobState::MarkProcesses(const proto::JobView& before) {
  int waited = 0, wait = 0;
  const proto::ProcessView* first = nullptr;
  for (const proto::ProcessView& process : view_.processes()) {
    const proto::ProcessView* was = Find(before, process);
    if (was == nullptr) continue;
    const std::string who = Describe(process.process());
    waited += !was->held_up_by().empty();
    wait += !process.held_up_by().empty();
    if (wait == 1 && first == nullptr) first = &process;
    if (process.left()) {
      if (!was->left()) Mark(absl::StrCat(who, " has left"), false);
      continue;
    }
    const bool silent = IsSilent(process);
    const bool was_silent = IsSilent(*was);
    if (silent && !was_silent) {
      Mark(absl::StrCat(who, " has not been heard for ",
                        process.silent_ms() / 1000, " s"),
           true);
    } else if (was_silent && !silent) {
      Mark(absl::StrCat(who, " is heard again"), false);
    }
  }
  if (wait > 0 && waited == 0) {
    Mark(absl::StrCat(Describe(first->process()), wait > 1 ? " and others" : "",
                      " wait", wait > 1 ? "" : "s", " at ", first->waits_at(),
                      " for ", first->held_up_by()),
         true);
  } else if (wait == 0 && waited > 0) {
    Mark("nobody waits long any more", false);
  }
}

}  // namespace psring
