#include "lab/predict/compute.h"

#include <algorithm>
#include <numeric>

#include "common/model/layout.h"
#include "common/uniform.h"

namespace psring {
namespace {

double Mean(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0) /
         static_cast<double>(times.size());
}

double Draw(const std::vector<double>& times, std::mt19937_64& random) {
  const double place = Uniform(random()) * static_cast<double>(times.size());
  return times[std::min(static_cast<size_t>(place), times.size() - 1)];
}

}  // namespace

std::vector<int64_t> CutBuckets(int64_t parameters, double bucket_bytes) {
  constexpr int64_t kBytes = sizeof(float);
  const auto most =
      std::max<int64_t>(kBytes, static_cast<int64_t>(bucket_bytes));
  std::vector<int64_t> buckets;
  for (int64_t left = parameters; left > 0; left -= buckets.back()) {
    buckets.push_back(
        std::min(left, BucketLimit(kBytes * left, most) / kBytes));
  }
  return buckets;
}

std::vector<double> ReadyTimes(const Workload& workload, double compute_s) {
  const double all = static_cast<double>(NumElements(workload));
  const double forward = workload.forward_share * compute_s;
  std::vector<double> times;
  double done = 0;
  for (const int64_t elements : workload.buckets) {
    done += static_cast<double>(elements);
    times.push_back(forward + (compute_s - forward) * done / all);
  }
  return times;
}

std::vector<double> DrawComputeTimes(const Workload& workload, int workers,
                                     std::mt19937_64& random) {
  const std::vector<std::vector<double>>& times = workload.compute_s;
  if (times.empty()) return std::vector<double>(workers, 0);
  std::vector<double> drawn;
  for (int w = 0; w < workers; ++w) {
    drawn.push_back(Draw(times.size() == 1 ? times[0] : times[w], random));
  }
  return drawn;
}

double MeanCompute(const Workload& workload) {
  if (workload.compute_s.empty()) return 0;
  double sum = 0;
  for (const std::vector<double>& times : workload.compute_s) {
    sum += Mean(times);
  }
  return sum / static_cast<double>(workload.compute_s.size());
}

}  // namespace psring
