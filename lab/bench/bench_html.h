// Results as a page with charts of time against size.
#ifndef PSRING_LAB_BENCH_BENCH_HTML_H_
#define PSRING_LAB_BENCH_BENCH_HTML_H_

#include <string>

#include "lab/bench/results.h"

namespace psring {

// One file that needs no other and no network. All that comes from the user or
// from files is escaped.
std::string RenderBenchHtml(const BenchResults& results);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_HTML_H_
