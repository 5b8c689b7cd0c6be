// What people see of a job: what its coordinator knows now, and how that came
// about. No clock and no socket; bounded memory, however long the job runs.
#ifndef PSRING_COMMON_PAGE_JOB_STATE_H_
#define PSRING_COMMON_PAGE_JOB_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/trace/step_times.h"
#include "protos/cluster.pb.h"

namespace psring {

// How fast a process is, over some seconds and at least a step or two. Seconds
// are those of its mean step.
struct Pace {
  double steps_per_second = 0;
  double samples_per_second = 0;
  double compute_s = 0;
  double exposed_s = 0;   // waiting for the exchange
  double catch_up_s = 0;  // of that, until others had made their steps
  double slowed_s = 0;    // an injected fault's
  double sent_per_second = 0;
  double received_per_second = 0;
  double updates_per_second = 0;
  double staleness = 0;  // of the mean gradient that a server has applied
};

// The job at a moment, or its mean over the looks that a point of a curve
// stands for. Seconds of steps are a mean worker's.
struct JobPoint {
  double seconds = 0;  // since the job was complete
  double step = 0;
  bool paced = false;             // what follows from paces is known
  std::optional<double> loss;     // mean over workers
  double samples_per_second = 0;  // of all workers
  double steps_per_second = 0;    // of a mean one
  double compute_s = 0;
  double exposed_s = 0;  // communication that no computation hides
  double waiting_s = 0;  // for workers that were later
  double slowed_s = 0;
  double staleness = 0;
  double sent_per_second = 0;  // bytes, of all processes
  double received_per_second = 0;
  double resident_bytes = 0;
};

struct JobEvaluation {
  double seconds = 0;
  int64_t step = 0;
  std::optional<double> accuracy, test_loss;
};

// Something that happened.
struct JobMark {
  double seconds = 0;
  int64_t step = 0;
  std::string text;
  bool fault = false;
};

// The worker that the others waited for lately.
struct Straggler {
  std::string who;   // "worker 3 (host b, pid 4711)"; empty: nobody
  double share = 0;  // of all time that workers waited for others
};

// One thread's own.
class JobState {
 public:
  static constexpr size_t kMaxPoints = 600;
  static constexpr size_t kMaxEvaluations = 600;
  static constexpr size_t kMaxMarks = 200;

  // The job at `now`; about once a second. Anybody may have made the view.
  void Take(Time now, const proto::JobView& view);

  const proto::JobView& view() const { return view_; }
  // By place in view().processes().
  const std::vector<Pace>& paces() const { return paces_; }
  // The policy that its servers follow, as they tell: "bsp", "ssp:3". Empty:
  // unknown.
  std::string sync() const;
  // 0: unknown.
  int64_t total_steps() const;
  // Where the job is complete: how it is now.
  const std::optional<JobPoint>& now() const { return now_; }
  // When there are kMaxPoints, two become one: then every point stands for
  // twice the time as before, and thinned() is one more.
  const std::vector<JobPoint>& points() const { return points_; }
  const std::vector<JobEvaluation>& evaluations() const { return evaluations_; }
  int64_t thinned() const { return thinned_; }
  const std::deque<JobMark>& marks() const { return marks_; }
  const Straggler& straggler() const { return straggler_; }
  double seconds() const { return seconds_; }
  // Calls of Take.
  int64_t looks() const { return looks_; }

 private:
  using Key = std::pair<int, int>;  // role, rank

  // What a process had counted when its pace was measured last.
  struct Measured {
    Time when;
    proto::Figures figures;
    Pace pace;
  };

  void MeasurePaces(Time now);
  void TakeRecords();
  void ExplainWaits();
  JobPoint PointNow() const;
  void Keep(const JobPoint& point);
  bool SpeaksForAll(const proto::ProcessView& process) const;
  void TakeEvaluations(const proto::JobView& before);
  void MarkChanges(const proto::JobView& before);
  void MarkProcesses(const proto::JobView& before);
  void Mark(std::string text, bool fault);
  int64_t Step() const;
  std::optional<double> Loss() const;  // mean of the workers

  Time complete_;  // when it was first seen so
  int64_t looks_ = 0;
  double seconds_ = 0;
  proto::JobView view_;
  std::map<Key, Measured> measured_;
  std::vector<Pace> paces_;
  std::optional<JobPoint> now_;
  std::vector<JobPoint> gathered_;  // for the next one of points_
  size_t looks_a_point_ = 1;
  std::vector<JobPoint> points_;
  std::vector<JobEvaluation> evaluations_;
  std::optional<Key> teller_;  // of the last evaluation, and of how many
  int64_t num_told_ = 0;
  int64_t thinned_ = 0;
  std::deque<JobMark> marks_;
  std::map<int, WorkerSteps> steps_;  // lately, by worker's rank
  // Of the time that workers spent in the exchange, what was waiting for
  // others.
  double waiting_share_ = 0;
  Straggler straggler_;
};

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_JOB_STATE_H_
