// The report of `psring bench`: tables for the terminal, files for people and
// programs.
#ifndef PSRING_LAB_BENCH_BENCH_REPORT_H_
#define PSRING_LAB_BENCH_BENCH_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "lab/bench/results.h"

namespace psring {

inline constexpr char kBenchHtml[] = "bench.html";
inline constexpr char kBenchJson[] = "bench.json";

// Every table that has rows, and the notes.
std::string BenchText(const BenchResults& results);

// Writes both files to the folder `directory`.
absl::Status WriteBenchReport(const BenchResults& results,
                              const std::string& directory);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_REPORT_H_
