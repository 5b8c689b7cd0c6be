#include "common/trace/timeline.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/optim/sync_policy.h"
#include "common/trace/clock_readings.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

// A track holds as many events as a busy thread makes in several of these.
constexpr absl::Duration kInterval = absl::Milliseconds(100);

// Viewers know processes by a number: servers come after the workers.
constexpr int kFirstWorkerPid = 1;
constexpr int kFirstServerPid = 10001;

// Not below 0, where a clock is set back.
std::string Microseconds(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000);
}

std::string ArgsText(const SpanArgs& args) {
  std::string text;
  const auto add = [&](const char* name, int64_t value) {
    if (value < 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ",", "\"", name, "\":", value);
  };
  add("step", args.step);
  add("bucket", args.bucket);
  add("bytes", args.bytes);
  if (args.peer >= 0 && args.peer_role != nullptr) {
    absl::StrAppend(&text, text.empty() ? "" : ",", "\"peer\":\"",
                    args.peer_role, " ", args.peer, "\"");
  }
  return text;
}

nlohmann::json Described(const proto::Process& self, const proto::Welcome& job,
                         int64_t origin_ns) {
  const proto::JobSpec& spec = job.spec();
  return {{"role", self.role() == proto::PS ? "ps" : "worker"},
          {"rank", self.rank()},
          {"host", self.host()},
          {"pid", self.pid()},
          {"job", absl::StrCat(absl::Hex(job.job_epoch()))},
          {"workers", job.workers_size()},
          {"servers", job.servers_size()},
          {"mode", spec.mode() == proto::RING ? "ring" : "ps"},
          {"sync", PolicyOf(spec).name},
          {"staleness", spec.staleness()},
          {"backup_workers", spec.backup_workers()},
          {"origin_ns", origin_ns},
          {"date_ns", absl::ToUnixNanos(WallNow())}};
}

}  // namespace

std::optional<TimelineEvent> Track::Take() {
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  if (taken == added_.load(std::memory_order_acquire)) return std::nullopt;
  const TimelineEvent event = events_[taken % kCapacity];
  taken_.store(taken + 1, std::memory_order_release);
  return event;
}

absl::StatusOr<std::unique_ptr<Timeline>> Timeline::Create(
    const TimelineOptions& options, proto::Role role, const proto::Welcome& job,
    ClockSource clock) {
  if (options.directory.empty()) return nullptr;
  const bool server = role == proto::PS;
  const proto::Process& self =
      server ? job.servers(job.rank()) : job.workers(job.rank());
  const std::string name =
      absl::StrCat(server ? "ps" : "worker", "-", job.rank());
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  auto file = TraceFile::Create(
      absl::StrCat(options.directory, "/", name, ".trace.json"),
      options.max_mb * TraceFile::kRegionBytes);
  if (!file.ok()) {
    return absl::PermissionDeniedError(
        error ? absl::StrCat("--timeline: cannot make ", options.directory,
                             ": ", error.message())
              : absl::StrCat("--timeline: ",
                             std::string(file.status().message())));
  }
  const int pid = (server ? kFirstServerPid : kFirstWorkerPid) + job.rank();
  std::unique_ptr<Timeline> timeline(
      new Timeline(*std::move(file), pid, options.max_mb, std::move(clock)));
  timeline->WriteNote(
      "psring", "M", 0,
      absl::StrCat("\"args\":",
                   Described(self, job, timeline->origin_ns_).dump()));
  const nlohmann::json title = {
      {"name", absl::StrCat(server ? "ps " : "worker ", job.rank(), ", host ",
                            self.host())}};
  timeline->WriteNote("process_name", "M", 0,
                      absl::StrCat("\"args\":", title.dump()));
  timeline->WriteNote("process_sort_index", "M", 0,
                      absl::StrCat("\"args\":{\"sort_index\":", pid, "}"));
  timeline->thread_ = std::thread([t = timeline.get()] { t->Run(); });
  return timeline;
}

Timeline::Timeline(std::unique_ptr<TraceFile> file, int pid, int64_t max_mb,
                   ClockSource clock)
    : pid_(pid),
      max_mb_(max_mb),
      clock_(std::move(clock)),
      file_(std::move(file)) {}

Timeline::~Timeline() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  MoveEvents();
}

Track* Timeline::AddTrack(const std::string& name) {
  auto track = std::make_unique<Track>(name);
  MutexLock lock(&mutex_);
  tracks_.push_back(std::move(track));
  return tracks_.back().get();
}

void Timeline::Run() {
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_;
  };
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (mutex_.AwaitUntil(stopping, Now() + kInterval)) return;
    }
    MoveEvents();
  }
}

void Timeline::MoveEvents() {
  std::vector<Track*> tracks;
  {
    MutexLock lock(&mutex_);
    for (const auto& track : tracks_) tracks.push_back(track.get());
  }
  while (told_lost_.size() < tracks.size()) {
    told_lost_.push_back(0);
    const auto tid = static_cast<int>(told_lost_.size());
    WriteNote(
        "thread_name", "M", tid,
        absl::StrCat("\"args\":{\"name\":\"", tracks[tid - 1]->name(), "\"}"));
  }
  WriteClock();
  for (size_t i = 0; i < tracks.size(); ++i) {
    MoveTrack(*tracks[i], static_cast<int>(i) + 1);
  }
  if (!stopped_) Stop(file_->Flush());
}

void Timeline::MoveTrack(Track& track, int tid) {
  while (const std::optional<TimelineEvent> event = track.Take()) {
    if (stopped_) continue;
    Write(
        absl::StrCat("{\"name\":\"", event->name,
                     "\",\"ph\":\"X\",\"pid\":", pid_, ",\"tid\":", tid,
                     ",\"ts\":", Microseconds(event->begin_ns - origin_ns_),
                     ",\"dur\":", Microseconds(event->end_ns - event->begin_ns),
                     ",\"args\":{", ArgsText(event->args), "}}"));
  }
  int64_t& told = told_lost_[tid - 1];
  if (track.lost() == told) return;
  const int64_t lost = track.lost();
  WriteNote(absl::StrCat("lost ", lost - told, " events"), "i", tid,
            absl::StrCat("\"s\":\"t\",\"ts\":",
                         Microseconds(NowNanos() - origin_ns_)));
  told = lost;
}

void Timeline::WriteClock() {
  const std::optional<ClockOffset> clock = clock_();
  if (!clock.has_value() || clock == written_clock_) return;
  // After a stop, the same reading counts from there on.
  Time at = clock->at;
  if (written_clock_.has_value() &&
      IsJump(absl::ToInt64Nanoseconds(clock->ahead - written_clock_->ahead))) {
    at = clock->ahead > written_clock_->ahead ? LastStop() : Now();
  }
  written_clock_ = clock;
  WriteNote(
      "psring_clock", "M", 0,
      absl::StrCat(
          "\"args\":{\"ahead_ns\":", absl::ToInt64Nanoseconds(clock->ahead),
          ",\"round_trip_ns\":", absl::ToInt64Nanoseconds(clock->round_trip),
          ",\"at_ns\":", at.nanos(), "}"));
}

void Timeline::WriteNote(const std::string& name, const char* ph, int tid,
                         const std::string& more) {
  Write(absl::StrCat("{\"name\":\"", name, "\",\"ph\":\"", ph,
                     "\",\"pid\":", pid_, ",\"tid\":", tid, ",", more, "}"));
}

void Timeline::Write(const std::string& text) {
  if (!stopped_) Stop(file_->Append(text));
}

void Timeline::Stop(const absl::Status& status) {
  if (status.ok()) return;
  stopped_ = true;
  std::string why(status.message());
  if (absl::IsResourceExhausted(status)) {
    why = absl::StrCat("full: --timeline-mb=", max_mb_);
    file_
        ->Append(absl::StrCat("{\"name\":\"", why,
                              "\",\"ph\":\"i\",\"s\":\"p\","
                              "\"pid\":",
                              pid_, ",\"tid\":0,\"ts\":",
                              Microseconds(NowNanos() - origin_ns_), "}"),
                 /*last_words=*/true)
        .IgnoreError();
    file_->Flush().IgnoreError();
  }
  LogWarning("the timeline ends here; training continues: $0", why);
}

}  // namespace psring
