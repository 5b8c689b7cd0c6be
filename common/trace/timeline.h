// What a process does when, for people to look at: a file in Chrome's trace
// event format, one row a thread, which `psring timeline` and viewers read.
//
// Whoever records has a Track, its thread's own buffer, and puts a TimelineSpan
// around what it does: two clock reads and a store, no lock. A thread of the
// timeline moves the events into the file several times a second, so that
// kill -9 loses a moment at most. Where there is no timeline tracks are null,
// and a span does nothing.
//
// The file's lines, one event each (times in microseconds since its origin):
//   psring        what the others need to know of the process; the origin by
//                 its host's monotonic clock, and as a date
//   psring_clock  how far the coordinator's clock was ahead at a moment
//   X             a span: step, bucket, peer and bytes where they are known
//   i             the timeline's own: it has lost events, or it is full
#ifndef PSRING_COMMON_TRACE_TIMELINE_H_
#define PSRING_COMMON_TRACE_TIMELINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/clock_offset.h"
#include "common/mutex.h"
#include "common/trace/trace_file.h"
#include "protos/cluster.pb.h"

namespace psring {

struct TimelineOptions {
  std::string directory;  // empty: no timeline
  int64_t max_mb = 64;    // of the file
};

// -1 and null: not known.
struct SpanArgs {
  int64_t step = -1;
  int64_t bytes = -1;
  int bucket = -1;
  int peer = -1;                    // a rank
  const char* peer_role = nullptr;  // "worker" or "ps"
};

struct TimelineEvent {
  const char* name = "";  // a literal of letters and spaces
  SpanArgs args;
  int64_t begin_ns = 0;  // of the monotonic clock
  int64_t end_ns = 0;
};

// The events of one thread at a time. What does not fit until the timeline
// looks again is lost, and counted.
class Track {
 public:
  explicit Track(std::string name) : name_(std::move(name)) {}

  void Add(const TimelineEvent& event) {
    const uint64_t added = added_.load(std::memory_order_relaxed);
    if (added - taken_.load(std::memory_order_acquire) == kCapacity) {
      lost_.store(lost() + 1, std::memory_order_relaxed);
      return;
    }
    events_[added % kCapacity] = event;
    added_.store(added + 1, std::memory_order_release);
  }

  // The timeline's side.
  const std::string& name() const { return name_; }
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  std::optional<TimelineEvent> Take();

 private:
  static constexpr uint64_t kCapacity = 8192;

  const std::string name_;
  std::atomic<uint64_t> added_ = 0;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<int64_t> lost_ = 0;
  std::vector<TimelineEvent> events_ = std::vector<TimelineEvent>(kCapacity);
};

// From its construction to End or its destruction, on the track's thread.
class TimelineSpan {
 public:
  TimelineSpan(Track* track, const char* name, const SpanArgs& args = {})
      : track_(track) {
    if (track_ == nullptr) return;
    event_ = {name, args, NowNanos()};
  }
  ~TimelineSpan() { End(); }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

  // What is found out on the way.
  SpanArgs& args() { return event_.args; }

  void End() {
    if (track_ == nullptr) return;
    event_.end_ns = NowNanos();
    track_->Add(event_);
    track_ = nullptr;
  }
  // It was nothing.
  void Drop() { track_ = nullptr; }

 private:
  Track* track_;
  TimelineEvent event_;
};

class Timeline {
 public:
  // How far the coordinator's clock is ahead, if that is known by now; called
  // on the timeline's thread.
  using ClockSource = std::function<std::optional<ClockOffset>()>;

  // DIRECTORY/worker-RANK.trace.json (or ps-RANK.trace.json), made anew, of
  // this process of `job`. Null where options name no directory.
  static absl::StatusOr<std::unique_ptr<Timeline>> Create(
      const TimelineOptions& options, proto::Role role,
      const proto::Welcome& job, ClockSource clock);

  // Writes what is left. Nobody adds to its tracks any more.
  ~Timeline();

  // A new row. Any thread; the track lives as long as the timeline.
  Track* AddTrack(const std::string& name);

 private:
  Timeline(std::unique_ptr<TraceFile> file, int pid, int64_t max_mb,
           ClockSource clock);

  void Run();
  // Of Run, and of the destructor after it.
  void MoveEvents();
  void MoveTrack(Track& track, int tid);
  void WriteClock();
  // Of phase `ph`, which says what else is in the event.
  void WriteNote(const std::string& name, const char* ph, int tid,
                 const std::string& more);
  void Write(const std::string& text);
  // Unless `status` is OK.
  void Stop(const absl::Status& status);

  // Fixed after Create.
  const int pid_;
  const int64_t max_mb_;
  const int64_t origin_ns_ = NowNanos();
  const ClockSource clock_;

  // The thread's own.
  const std::unique_ptr<TraceFile> file_;
  bool stopped_ = false;  // full, or broken
  std::optional<ClockOffset> written_clock_;
  std::vector<int64_t> told_lost_;  // by track

  Mutex mutex_;
  std::vector<std::unique_ptr<Track>> tracks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Null where there is no timeline.
inline Track* AddTrack(Timeline* timeline, const std::string& name) {
  return timeline == nullptr ? nullptr : timeline->AddTrack(name);
}

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_TIMELINE_H_
