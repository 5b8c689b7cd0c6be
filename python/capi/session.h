// This process's part in a job of a foreign program: a worker without a
// training loop, and those of the job's servers that live in it.
#ifndef PSRING_PYTHON_CAPI_SESSION_H_
#define PSRING_PYTHON_CAPI_SESSION_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/job_client.h"
#include "client/own_servers.h"
#include "collectives/collectives.h"
#include "collectives/options.h"
#include "common/clock.h"
#include "common/cluster/activity.h"
#include "common/cluster/script_placement.h"
#include "common/cluster/security.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "common/trace/metrics_file.h"
#include "nlohmann/json.hpp"
#include "python/capi/script_model.h"
#include "python/capi/session_options.h"

namespace psring {

// Any thread may call; calls for one model come one at a time.
class Session {
 public:
  // Finds this process's place. `cancellation` outlives the session. The thread
  // that calls it is the program's main one.
  static absl::StatusOr<std::unique_ptr<Session>> Create(
      SessionOptions options, Cancellation& cancellation);
  ~Session();

  // Blocks until the job is complete. Once.
  absl::Status Join();
  bool joined() const { return joined_; }

  // "HOST:PORT" at which the coordinator listens that this process hosts; empty
  // before it does, and where it hosts none.
  std::string coordinator();

  // {"rank", "size", ...}: see psring_job. After Join.
  nlohmann::json Describe() const;

  // To this process's metrics. After Join.
  void Log(nlohmann::json line);

  // Tells the servers, if it is rank 0's, whether the program does what
  // stop_asked() asks for.
  void HeedStop(bool heeds);
  // Whether a server has asked the workers to end early.
  bool stop_asked();

  // Blocks until the job has ended for all, or at once after an error. Models
  // are closed. Nothing else follows.
  absl::Status Leave(const absl::Status& result);

  // Blocks until all have opened it; its number.
  absl::StatusOr<int64_t> OpenModel(const std::string& options);
  // Null: there is none of that number.
  ScriptModel* model(int64_t number);
  // Blocks until all have closed it. INVALID_ARGUMENT: there is none of that
  // number.
  // `closed` becomes the model, whose memory may be in use, or stays null where
  // there is none of that number.
  absl::Status CloseModel(int64_t number, std::unique_ptr<ScriptModel>* closed);
  // All models, whose memory programs may still use; their exchanges have
  // ended. The last call.
  std::vector<std::unique_ptr<ScriptModel>> TakeModels();

  // ScriptModel::Finish. A step that needs a worker which has left the job
  // fails soon, with its name.
  absl::Status Finish(ScriptModel& model);

  // A collective is waited for.
  void NoteMeeting(int64_t handle);
  // ScriptModel::Synchronise, of workers that have just met in a collective.
  absl::Status Synchronise(ScriptModel& model);

  Collectives& collectives() { return *collectives_; }
  // What the program does, as the job sees it: it runs by itself but for the
  // scopes in which it waits here. After Join.
  std::shared_ptr<Activity> activity() { return activity_; }
  JobClient& job() { return *job_; }
  absl::Duration step_timeout() const { return options_.step_timeout; }

 private:
  Session(SessionOptions options, Placement placement,
          std::vector<int> own_servers, Security security,
          Cancellation& cancellation);
  void StartServers();
  // What Join does once the job is complete.
  absl::Status Begin();
  absl::Status ConnectCollectives();
  void WriteEnd();
  // For Collectives (CollectivesOptions).
  std::vector<ModelStep> StepsAwaited(absl::Duration at_least);
  bool Owes(const ModelStep& step);
  // What the model has sent and received, too.
  void TellTraffic(ScriptModel& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To those who look at the job: a step's figures, and what a script logs.
  void TellStep(ScriptModel& model, int64_t step, Time begin, Time end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellLog(const nlohmann::json& line);
  // On a thread of its own: looks after steps that wait for those who have
  // left.
  void WatchSteps();

  const SessionOptions options_;
  const Placement placement_;
  const std::vector<int> own_servers_;  // that live in this process
  const Security security_;
  Cancellation& cancellation_;
  // Join runs on another.
  const std::thread::id main_thread_ = std::this_thread::get_id();
  Time start_;
  std::atomic<bool> joined_ = false;

  Mutex mutex_;
  std::string coordinator_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::unique_ptr<ScriptModel>> models_
      ABSL_GUARDED_BY(mutex_);
  Traffic closed_traffic_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<JobClient> job_;
  std::unique_ptr<Collectives> collectives_;
  std::shared_ptr<Activity> activity_;
  std::optional<MetricsFile> metrics_ ABSL_GUARDED_BY(mutex_);
  nlohmann::json end_ ABSL_GUARDED_BY(mutex_);  // the end line's, so far
  // Steps under way that wait for every worker: since when, and their number.
  struct WaitingStep {
    Time since;
    int64_t step;  // ScriptModel::StepNeededBy
  };
  std::map<const ScriptModel*, WaitingStep> waiting_ ABSL_GUARDED_BY(mutex_);
  Time last_step_ ABSL_GUARDED_BY(mutex_);  // when it ended
  // The last collective that was waited for, and since when.
  std::pair<int64_t, Time> meeting_ ABSL_GUARDED_BY(mutex_) = {-1, Time()};
  // What the figures hold of each model's traffic.
  std::map<const ScriptModel*, Traffic> told_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stop_asked_ = false;
  Cancellation ended_;  // this session
  std::thread watcher_;
  OwnServers servers_;
};

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_SESSION_H_
