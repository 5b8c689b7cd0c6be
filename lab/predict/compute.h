// A worker's buckets, and when their gradients are ready: pure arithmetic.
#ifndef PSRING_LAB_PREDICT_COMPUTE_H_
#define PSRING_LAB_PREDICT_COMPUTE_H_

#include <cstdint>
#include <random>
#include <vector>

#include "lab/predict/scenario.h"

namespace psring {

// Elements of the buckets of a model that could be cut anywhere
// (BucketLimit()), the last (the model's first tensors) the rest.
std::vector<int64_t> CutBuckets(int64_t parameters, double bucket_bytes);

// When each bucket of a worker that computes for `compute_s` is ready, counted
// from the step's start, in the order in which they leave; the last at
// compute_s.
std::vector<double> ReadyTimes(const Workload& workload, double compute_s);

// Draws a time for every worker, out of its own measured ones or the shared
// ones, of which all are equally likely. Returns the same for the same state of
// `random`.
std::vector<double> DrawComputeTimes(const Workload& workload, int workers,
                                     std::mt19937_64& random);

// The mean over all workers; 0 where they compute nothing.
double MeanCompute(const Workload& workload);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_COMPUTE_H_
