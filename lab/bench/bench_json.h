// Results as JSON: for programs, and for the page's charts.
#ifndef PSRING_LAB_BENCH_BENCH_JSON_H_
#define PSRING_LAB_BENCH_BENCH_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/bench/results.h"

namespace psring {

// Every raw time with what follows from them.
nlohmann::json ToJson(const BenchResults& results);

// The same as text.
std::string RenderBenchJson(const BenchResults& results);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_JSON_H_
