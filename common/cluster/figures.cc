#include "common/cluster/figures.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "common/printable.h"

namespace psring {
namespace {

constexpr size_t kMaxRecords = 16;
constexpr size_t kMaxWordBytes = 256;
constexpr double kMaxSeconds = 1e9;
constexpr int64_t kMaxCount = int64_t{1} << 60;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t Count(int64_t count) {
  return std::clamp<int64_t>(count, 0, kMaxCount);
}

double Finite(double number) {
  return std::isfinite(number) ? number : std::nan("");
}

double Seconds(double seconds) {
  return seconds > 0 ? std::min(seconds, kMaxSeconds) : 0;  // NaN too
}

// Every `stride`-th step, and the one whose arrivals it waits for.
bool IsKept(int64_t step, int64_t stride, int64_t staleness) {
  return step % stride == 0 || (step + staleness) % stride == 0;
}

}  // namespace

void FigureBoard::Update(const std::function<void(proto::Figures&)>& change) {
  MutexLock lock(&mutex_);
  change(figures_);
}

void FigureBoard::AddStep(int64_t step, Time arrived, Time went_on) {
  MutexLock lock(&mutex_);
  const int64_t staleness = figures_.staleness_bound();
  if (!IsKept(step, stride_, staleness)) return;
  // Models that are closed after a step each all have the step 0.
  std::erase_if(records_, [=](const Record& r) { return r.step == step; });
  records_.push_back({step, arrived, went_on});
  while (records_.size() > kMaxRecords) {
    stride_ *= 2;
    std::erase_if(records_, [&, stride = stride_](const Record& r) {
      return !IsKept(r.step, stride, staleness);
    });
  }
}

proto::Figures FigureBoard::Take(const std::optional<ClockOffset>& clock) {
  proto::Figures figures;
  std::vector<Record> records;
  {
    MutexLock lock(&mutex_);
    figures = figures_;
    records = std::exchange(records_, {});
    if (records.size() < kMaxRecords / 4 && stride_ > 1) stride_ /= 2;
  }
  figures.set_resident_bytes(ResidentBytes());
  figures.set_last_word(CleanWord(figures.last_word()));
  if (!clock.has_value()) return figures;
  for (const Record& record : records) {
    proto::StepRecord& told = *figures.add_records();
    told.set_step(record.step);
    told.set_arrived_ns((record.arrived + clock->ahead).nanos());
    told.set_went_on_ns((record.went_on + clock->ahead).nanos());
  }
  return figures;
}

proto::Figures CleanFigures(proto::Figures f) {
  f.DiscardUnknownFields();
  f.set_resident_bytes(Count(f.resident_bytes()));
  f.set_bytes_sent(Count(f.bytes_sent()));
  f.set_bytes_received(Count(f.bytes_received()));
  f.set_steps(Count(f.steps()));
  f.set_compute_seconds(Seconds(f.compute_seconds()));
  f.set_exposed_seconds(Seconds(f.exposed_seconds()));
  f.set_slowed_seconds(Seconds(f.slowed_seconds()));
  f.set_catch_up_seconds(Seconds(f.catch_up_seconds()));
  f.set_samples(Count(f.samples()));
  if (f.has_loss()) f.set_loss(Finite(f.loss()));
  f.set_total_steps(Count(f.total_steps()));
  f.set_evaluations(Count(f.evaluations()));
  f.set_evaluated_step(Count(f.evaluated_step()));
  if (f.has_accuracy()) f.set_accuracy(Finite(f.accuracy()));
  if (f.has_test_loss()) f.set_test_loss(Finite(f.test_loss()));
  if (f.records_size() > static_cast<int>(kMaxRecords)) f.clear_records();
  for (proto::StepRecord& record : *f.mutable_records()) {
    record.set_step(Count(record.step()));
    record.set_arrived_ns(Count(record.arrived_ns()));
    record.set_went_on_ns(Count(record.went_on_ns()));
  }
  f.set_sync(CleanWord(f.sync()));
  f.set_staleness_bound(Count(f.staleness_bound()));
  f.set_backup_workers(std::max(f.backup_workers(), 0));
  f.set_updates(Count(f.updates()));
  f.set_staleness_sum(Count(f.staleness_sum()));
  f.set_staleness_max(Count(f.staleness_max()));
  f.set_late_gradients(Count(f.late_gradients()));
  f.set_last_word(CleanWord(f.last_word()));
  return f;
}

std::string CleanWord(absl::string_view text) {
  return Printable(WholeCharacters(text, kMaxWordBytes));
}

}  // namespace psring
