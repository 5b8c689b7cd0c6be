#include "python/capi/session.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/job_collectives.h"
#include "common/clock.h"
#include "common/cluster/announcements.h"
#include "common/cluster/environment.h"
#include "common/cluster/figures.h"
#include "common/cluster/host_of.h"
#include "common/cluster/participants.h"
#include "common/cluster/process_names.h"
#include "common/format_loss.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/process/open_files.h"

namespace psring {

namespace {

// Python may use select(), so not as many as the system allows.
void AllowFilesFor(int peers) {
  constexpr int kOwn = 64;
  constexpr int kOfPeer = 8;  // connections, most of them rank 0's
  AllowFiles(kOwn + kOfPeer * peers);
}

}  // namespace

Session::Session(SessionOptions options, Placement placement,
                 std::vector<int> own_servers, Security security,
                 Cancellation& cancellation)
    : options_(std::move(options)),
      placement_(std::move(placement)),
      own_servers_(std::move(own_servers)),
      security_(std::move(security)),
      cancellation_(cancellation),
      servers_([this](const absl::Status& status) {
        // Once it has joined, the job is told by itself.
        if (!joined_ && ended_.status().ok()) cancellation_.Cancel(status);
      }) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(
    SessionOptions options, Cancellation& cancellation) {
  SetUpLog(options.log_level);
  const Variables variables = ReadVariables();
  auto environment = DetectEnvironment(variables);
  if (!environment.ok()) return environment.status();
  auto placement = PlaceScript(options.wish, *environment);
  if (!placement.ok()) return placement.status();
  auto security = FindSecurity({}, variables);
  if (!security.ok()) return security.status();
  AllowFilesFor(placement->num_workers + placement->num_servers);
  std::vector<int> servers;
  if (options.own_servers) {
    servers = ServersOf(options.wish, *environment, *placement);
  }
  return std::unique_ptr<Session>(
      new Session(std::move(options), *std::move(placement), std::move(servers),
                  *std::move(security), cancellation));
}

Session::~Session() {
  ended_.Cancel(absl::CancelledError("the session ends"));
  if (watcher_.joinable()) watcher_.join();
  collectives_.reset();  // it asks this session
  servers_.End();
  MutexLock lock(&mutex_);
  for (auto& [number, model] : models_) model->Disconnect();
}

absl::Status Session::Join() {
  ClusterOptions cluster;
  cluster.placement = placement_;
  cluster.mode =
      options_.wish.ring_mode ? proto::RING : proto::PARAMETER_SERVER;
  cluster.advertise = options_.advertise;
  cluster.interface = options_.interface;
  cluster.ports = options_.ports;
  cluster.join_timeout = options_.join_timeout;
  cluster.heartbeat_timeout = options_.heartbeat_timeout;
  cluster.progress_timeout = options_.progress_timeout;
  if (const int signal = options_.hang_signal; signal != 0) {
    cluster.on_hang = [signal] { kill(getpid(), signal); };
  }
  cluster.security = security_;
  cluster.page = options_.page;
  cluster.page_token_file = options_.page_token_file;
  auto job = JobClient::Start(cluster, cancellation_);
  if (!job.ok()) return job.status();
  job_ = *std::move(job);
  job_->context().ExpectWaitsOf(options_.step_timeout);
  if (placement_.hosts_coordinator) {
    const auto listens = ParseEndpoint(job_->coordinator());
    MutexLock lock(&mutex_);
    if (listens.ok()) coordinator_ = ToString(*listens);
  }
  StartServers();
  if (absl::Status s = job_->Join(); !s.ok()) return s;
  absl::Status begun = Begin();
  // Otherwise the others hear that this process has ended early.
  if (!begun.ok()) job_->Leave(begun).IgnoreError();
  return begun;
}

absl::Status Session::Begin() {
  AllowFilesFor(job_->job().workers_size() + job_->job().servers_size());
  if (absl::Status s = ConnectCollectives(); !s.ok()) return s;
  start_ = Now();
  auto metrics = MetricsFile::Create(
      options_.metrics_dir, job_->job().workers(job_->job().rank()),
      {{"mode", options_.wish.ring_mode ? "ring" : "ps"}},
      options_.tensorboard);
  if (!metrics.ok()) return metrics.status();
  MutexLock lock(&mutex_);
  metrics_ = *std::move(metrics);
  watcher_ = std::thread([this] { WatchSteps(); });
  activity_ = job_->member().activities().Add();
  activity_->Work("running the script");
  joined_ = true;
  return absl::OkStatus();
}

std::string Session::coordinator() {
  MutexLock lock(&mutex_);
  return coordinator_;
}

void Session::StartServers() {
  const auto coordinator = ParseEndpoint(job_->coordinator());
  if (!coordinator.ok()) return;
  for (const int s : own_servers_) {
    ServerOptions server = options_.server;
    server.cluster.placement = PlaceServer(placement_, s, *coordinator);
    server.cluster.mode = proto::PARAMETER_SERVER;
    server.cluster.advertise = job_->address();
    server.cluster.ports = options_.ports;
    server.cluster.join_timeout = options_.join_timeout;
    server.cluster.heartbeat_timeout = options_.heartbeat_timeout;
    server.cluster.progress_timeout = options_.progress_timeout;
    server.cluster.security = security_;
    servers_.Start(server);
  }
}

absl::Status Session::ConnectCollectives() {
  auto collectives = psring::ConnectCollectives(
      *job_,
      {.step_timeout = options_.step_timeout,
       .long_wait = kLongWait,
       .ranks_left = [this] { return job_->member().workers_left(); },
       .steps_awaited = [this](absl::Duration d) { return StepsAwaited(d); },
       .owes_step = [this](const ModelStep& step) { return Owes(step); },
       .shares_memory = options_.same_host == SameHost::kAuto,
       .main_thread = main_thread_});
  if (!collectives.ok()) return collectives.status();
  collectives_ = *std::move(collectives);
  return absl::OkStatus();
}

nlohmann::json Session::Describe() const {
  const proto::Welcome& job = job_->job();
  std::vector<std::string> hosts;
  std::vector<int64_t> pids;
  std::vector<int> local_ranks;
  for (const proto::Process& worker : job.workers()) {
    hosts.push_back(worker.host());
    pids.push_back(worker.pid());
    local_ranks.push_back(PlaceOnHost(job, worker.rank()).index);
  }
  const auto [local_rank, local_size] = PlaceOnHost(job, job.rank());
  int cross_rank = 0, cross_size = 0;
  for (int r = 0; r < job.workers_size(); ++r) {
    if (local_ranks[r] != local_rank) continue;
    if (r < job.rank()) ++cross_rank;
    ++cross_size;
  }
  return {{"rank", job.rank()},
          {"size", job.workers_size()},
          {"local_rank", local_rank},
          {"local_size", local_size},
          {"cross_rank", cross_rank},
          {"cross_size", cross_size},
          {"mode", options_.wish.ring_mode ? "ring" : "ps"},
          {"servers", job.servers_size()},
          {"address", job.workers(job.rank()).address()},
          {"hosts", hosts},
          {"pids", pids}};
}

void Session::WriteEnd() {
  MutexLock lock(&mutex_);
  Traffic all = closed_traffic_;
  int64_t shared = 0;
  for (const auto& [number, model] : models_) {
    all += model->traffic();
    shared += model->shared_bytes();
  }
  nlohmann::json end = {{"event", "end"},
                        {"step", 0},
                        {"seconds", absl::ToDoubleSeconds(Now() - start_)},
                        {"bytes_sent", all.sent},
                        {"bytes_received", all.received},
                        {"gradient_bytes_sent", all.gradients_sent},
                        {"peak_memory_bytes", PeakMemoryBytes(shared)}};
  if (end_.is_object()) end.update(end_);
  metrics_->Write(end);
}

// What a program says of its end goes with what is known here.
void Session::Log(nlohmann::json line) {
  TellLog(line);
  MutexLock lock(&mutex_);
  if (line.value("event", "") == "end") {
    end_ = std::move(line);
    return;
  }
  line["seconds"] = absl::ToDoubleSeconds(Now() - start_);
  metrics_->Write(line);
}

absl::Status Session::Leave(const absl::Status& result) {
  if (!joined_) return result;
  WriteEnd();
  const WaitingForOthers waiting(*activity_, "the end of the job");
  return job_->Leave(result);
}

absl::Status Session::Finish(ScriptModel& model) {
  const WaitingForOthers waiting(*activity_, "the exchange of a step");
  const Time begin = Now();
  const int64_t step = model.step();
  if (const auto needed = model.StepNeededBy(step); needed.has_value()) {
    MutexLock lock(&mutex_);
    waiting_[&model] = {begin, *needed};
  }
  const absl::Status status = model.Finish();
  MutexLock lock(&mutex_);
  waiting_.erase(&model);
  if (status.ok()) TellStep(model, step, begin, Now());
  return status;
}

void Session::NoteMeeting(int64_t handle) {
  MutexLock lock(&mutex_);
  if (meeting_.first != handle) meeting_ = {handle, Now()};
}

absl::Status Session::Synchronise(ScriptModel& model) {
  if (absl::Status s = model.Synchronise(); !s.ok()) return s;
  MutexLock lock(&mutex_);
  const absl::Duration took = Now() - std::max(meeting_.second, last_step_);
  // Others' steps are waited for, which is nothing that the script computes.
  if (last_step_ != Time()) last_step_ += took;
  job_->member().figures().Update([&](proto::Figures& all) {
    const double seconds = absl::ToDoubleSeconds(took);
    all.set_exposed_seconds(all.exposed_seconds() + seconds);
    all.set_catch_up_seconds(all.catch_up_seconds() + seconds);
  });
  TellTraffic(model);
  return absl::OkStatus();
}

void Session::TellTraffic(ScriptModel& model) {
  const Traffic traffic = model.traffic();
  Traffic& told = told_[&model];
  job_->member().figures().Update([&](proto::Figures& all) {
    all.set_bytes_sent(all.bytes_sent() + traffic.sent - told.sent);
    all.set_bytes_received(all.bytes_received() + traffic.received -
                           told.received);
  });
  told = traffic;
}

void Session::TellStep(ScriptModel& model, int64_t step, Time begin, Time end) {
  FigureBoard& board = job_->member().figures();
  const bool first =
      !models_.empty() && models_.begin()->second.get() == &model;
  if (first) board.AddStep(step, begin, end);
  // What lies before the first step is no step's.
  const absl::Duration computed =
      last_step_ == Time() ? absl::ZeroDuration() : begin - last_step_;
  last_step_ = end;
  board.Update([&](proto::Figures& all) {
    if (first) all.set_steps(all.steps() + 1);
    all.set_compute_seconds(all.compute_seconds() +
                            std::max(absl::ToDoubleSeconds(computed), 0.0));
    all.set_exposed_seconds(all.exposed_seconds() +
                            absl::ToDoubleSeconds(end - begin));
  });
  TellTraffic(model);
}

void Session::TellLog(const nlohmann::json& line) {
  const nlohmann::json infinite = line.value("not_finite", nlohmann::json());
  const auto number = [&](const char* name) -> std::optional<double> {
    for (const auto& other : infinite) {
      if (other == name) return std::nan("");
    }
    const auto found = line.find(name);
    if (found == line.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  };
  auto loss = number("loss");
  if (!loss.has_value()) loss = number("train_loss");
  const auto accuracy = number("test_accuracy");
  const auto test_loss = number("test_loss");
  job_->member().figures().Update([&](proto::Figures& all) {
    if (loss.has_value()) all.set_loss(*loss);
    if (!accuracy.has_value() && !test_loss.has_value()) return;
    all.set_evaluations(all.evaluations() + 1);
    all.set_evaluated_step(static_cast<int64_t>(number("step").value_or(0)));
    if (accuracy.has_value()) all.set_accuracy(*accuracy);
    if (test_loss.has_value()) all.set_test_loss(*test_loss);
    const double told = accuracy.has_value() ? *accuracy : *test_loss;
    const std::string value =
        accuracy.has_value() ? absl::StrFormat("%.4f", told) : FormatLoss(told);
    all.set_last_word(
        absl::StrCat("evaluation ", all.evaluations(), ": test ",
                     accuracy.has_value() ? "accuracy " : "loss ",
                     std::isfinite(told) ? value : "is not finite"));
  });
}

std::vector<ModelStep> Session::StepsAwaited(absl::Duration at_least) {
  const Time now = Now();
  std::vector<ModelStep> steps;
  MutexLock lock(&mutex_);
  for (const auto& [model, waiting] : waiting_) {
    if (now - waiting.since < at_least) continue;
    steps.push_back({model->id(), waiting.step});
  }
  return steps;
}

bool Session::Owes(const ModelStep& step) {
  MutexLock lock(&mutex_);
  for (const auto& [number, model] : models_) {
    if (model->id() == step.model) return model->Owes(step.step);
  }
  return false;
}

void Session::WatchSteps() {
  // What is on its way to a step when a worker leaves arrives within this time.
  const absl::Duration grace =
      std::max(absl::Seconds(10), options_.step_timeout / 2);
  Time first_left = Time::InfiniteFuture();
  while (ended_.SleepUntil(Now() + absl::Seconds(1)).ok()) {
    const std::vector<int> left = job_->member().workers_left();
    const Time now = Now();
    if (left.empty()) continue;
    first_left = std::min(first_left, now);
    MutexLock lock(&mutex_);
    for (const auto& [model, waiting] : waiting_) {
      if (now - std::max(first_left, waiting.since) < grace ||
          !model->waits_for_all()) {  // ssp's gates wait for it no more
        continue;
      }
      cancellation_.Cancel(absl::FailedPreconditionError(absl::StrCat(
          psring::Describe(job_->job().workers(left.front())),
          " has left the job, but step ", waiting.step, " of '", model->id(),
          "' needs it: all workers make the same number of steps, or call "
          "join()")));
      return;
    }
  }
}

absl::StatusOr<int64_t> Session::OpenModel(const std::string& options) {
  const auto parsed = ParseModelOptions(
      options, options_.wish.ring_mode ? proto::RING : proto::PARAMETER_SERVER);
  if (!parsed.ok()) return parsed.status();
  auto model = ScriptModel::Open(*job_, *parsed, options_.same_host,
                                 options_.step_timeout);
  if (!model.ok()) return model.status();
  // Of the process, not of this job: what is left of an earlier one must not
  // take another model for its own.
  static std::atomic<int64_t> last_model = 0;
  const int64_t number = ++last_model;
  MutexLock lock(&mutex_);
  models_[number] = *std::move(model);
  return number;
}

ScriptModel* Session::model(int64_t number) {
  MutexLock lock(&mutex_);
  const auto found = models_.find(number);
  return found == models_.end() ? nullptr : found->second.get();
}

absl::Status Session::CloseModel(int64_t number,
                                 std::unique_ptr<ScriptModel>* closed) {
  ScriptModel* model = nullptr;
  {
    MutexLock lock(&mutex_);
    const auto found = models_.find(number);
    if (found == models_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no model ", number));
    }
    *closed = std::move(found->second);
    model = closed->get();
    models_.erase(found);
    told_.erase(model);
  }
  const absl::Status status = model->Close();
  model->Disconnect();
  MutexLock lock(&mutex_);
  closed_traffic_ += model->traffic();
  return status;
}

void Session::HeedStop(bool heeds) {
  if (job_->job().rank() != 0) return;
  job_->member().Announce(proto::PS, kHeedsStop, heeds ? kHeeded : "");
}

bool Session::stop_asked() {
  if (job_->member().AwaitAnnouncement(kStopWish, Now()).ok()) {
    stop_asked_ = true;
  }
  return stop_asked_;
}

std::vector<std::unique_ptr<ScriptModel>> Session::TakeModels() {
  MutexLock lock(&mutex_);
  std::vector<std::unique_ptr<ScriptModel>> all;
  for (auto& [number, model] : models_) {
    model->Disconnect();
    all.push_back(std::move(model));
  }
  models_.clear();
  return all;
}

}  // namespace psring
