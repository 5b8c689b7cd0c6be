// Courses of several seeds as one line with a band. Pure.
#ifndef PSRING_LAB_STUDY_CURVES_H_
#define PSRING_LAB_STUDY_CURVES_H_

#include <vector>

#include "lab/study/comparison.h"

namespace psring {

// A point of a band: where the seeds were on average, and how far apart.
struct BandPoint {
  double step = 0;
  double seconds = 0;  // when the seeds were at that step, on average
  Spread value;
};

// A point for each evaluation, up to the first that some seed lacks.
std::vector<BandPoint> AccuracyBand(const Variant& variant);
std::vector<BandPoint> TestLossBand(const Variant& variant);

// The training loss, which every seed notes at other steps: smoothed
// (the mean with a 50th of all samples to each side), then read off at
// `num_points` steps that are evenly apart, linearly between samples. Of a
// script that notes it with its evaluations, a point for each.
std::vector<BandPoint> LossBand(const Variant& variant, int num_points);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_CURVES_H_
