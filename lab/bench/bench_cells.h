// Results as tables, for the terminal and for the page.
#ifndef PSRING_LAB_BENCH_BENCH_CELLS_H_
#define PSRING_LAB_BENCH_BENCH_CELLS_H_

#include <string>
#include <vector>

#include "lab/bench/results.h"

namespace psring {

// The first row and the first column are headers; only the header where there
// is nothing to tell.
std::vector<std::vector<std::string>> PointCells(const BenchResults& results);
std::vector<std::vector<std::string>> LinkCells(const BenchResults& results);
std::vector<std::vector<std::string>> TrainCells(const BenchResults& results);

// What the columns mean, and which peers are missing; a sentence or two each.
std::vector<std::string> Notes(const BenchResults& results);
// Why its figures are not all there, or not to be relied on.
std::vector<std::string> Warnings(const BenchResults& results);

// "allreduce, 2 ranks, 1 MB"; "train lenet, 2 workers, ring".
std::string NameOf(const SweepPoint& point);
std::string NameOf(const Training& training);

// With what was measured: "allreduce, 2 ranks, 1 MB: psring 1.2 ms, gloo 1.4
// ms; the limit is 0.3 ms".
std::string Describe(const SweepPoint& point);
std::string Describe(const Training& training);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_CELLS_H_
