#include "lab/bench/stopwatch.h"

#include <time.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lab/host/text_file.h"

namespace psring {
namespace {

double Read(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double MonotonicSeconds() { return Read(CLOCK_MONOTONIC); }

double ProcessCpuSeconds() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

void Stopwatch::Start(double start) {
  cpu_start_ = ProcessCpuSeconds();
  start_ = start;
}

void Stopwatch::Stop() {
  seconds_.push_back(MonotonicSeconds() - start_);
  cpu_seconds_.push_back(ProcessCpuSeconds() - cpu_start_);
}

absl::Status Stopwatch::Write(const std::string& directory, int rank) const {
  const nlohmann::json times = {
      {"rank", rank}, {"seconds", seconds_}, {"cpu_seconds", cpu_seconds_}};
  return WriteTextFile(absl::StrCat(directory, "/rank-", rank, ".json"),
                       times.dump());
}

}  // namespace psring
