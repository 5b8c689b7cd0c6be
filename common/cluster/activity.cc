#include "common/cluster/activity.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

struct Boards {
  Mutex mutex;
  std::set<ActivityBoard*> all ABSL_GUARDED_BY(mutex);
};

// For ever: a board may outlive whatever ends with the program.
Boards& AllBoards() {
  static auto& boards = *new Boards;
  return boards;
}

}  // namespace

ActivityBoard::ActivityBoard() {
  MutexLock lock(&AllBoards().mutex);
  AllBoards().all.insert(this);
}

ActivityBoard::~ActivityBoard() {
  MutexLock lock(&AllBoards().mutex);
  AllBoards().all.erase(this);
}

std::vector<std::string> ActivityBoard::TellAll() {
  std::vector<std::string> all;
  MutexLock lock(&AllBoards().mutex);
  for (ActivityBoard* board : AllBoards().all) board->Tell(all);
  return all;
}

void ActivityBoard::Tell(std::vector<std::string>& all) {
  MutexLock lock(&mutex_);
  for (const Watched& watched : watched_) {
    const auto activity = watched.activity.lock();
    if (activity == nullptr) continue;
    const char* what = activity->what_.load(std::memory_order_acquire);
    if (activity->waiting_.load(std::memory_order_acquire) > 0) {
      all.push_back(absl::StrCat(
          "waits: ", activity->waits_at_.load(std::memory_order_relaxed)));
    } else if (what != nullptr) {
      all.push_back(absl::StrCat("works: ", what));
    }
  }
}

std::shared_ptr<Activity> ActivityBoard::Add() {
  auto activity = std::make_shared<Activity>();
  MutexLock lock(&mutex_);
  watched_.push_back({.activity = activity, .count = 0, .since = Time()});
  return activity;
}

ActivityBoard::Report ActivityBoard::Look(Time now) {
  MutexLock lock(&mutex_);
  std::erase_if(watched_, [](const auto& w) { return w.activity.expired(); });
  Report report;
  for (Watched& watched : watched_) {
    const auto activity = watched.activity.lock();
    if (activity == nullptr) continue;
    const int waiting = activity->waiting_.load(std::memory_order_acquire);
    const char* what = activity->what_.load(std::memory_order_acquire);
    const uint64_t count = activity->count_.load(std::memory_order_relaxed);
    if (count != watched.count) watched.since = now;
    watched.count = count;
    const absl::Duration still = now - watched.since;
    if (waiting > 0 && (report.waits_at == nullptr || still > report.waited)) {
      report.waits_at = activity->waits_at_.load(std::memory_order_relaxed);
      report.waited = still;
    }
    if (what == nullptr || waiting > 0) continue;
    if (report.doing != nullptr && still <= report.still) continue;
    report.doing = what;
    report.still = still;
  }
  return report;
}

}  // namespace psring
