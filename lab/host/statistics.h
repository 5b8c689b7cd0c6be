// Statistics of times that were measured.
#ifndef PSRING_LAB_HOST_STATISTICS_H_
#define PSRING_LAB_HOST_STATISTICS_H_

#include <vector>

namespace psring {

// The middle value, or the mean of the middle two; `values` is not empty.
double Median(std::vector<double> values);

// The smallest value that at least `percent` of all are not above (the nearest
// rank), percent in (0, 100]; `values` is not empty.
double Percentile(std::vector<double> values, double percent);

// What Student's t of so many degrees of freedom (at least 1) exceeds, on
// either side, with `probability`, in (0, 1).
double StudentsT(double probability, int degrees_of_freedom);

}  // namespace psring

#endif  // PSRING_LAB_HOST_STATISTICS_H_
