// The job for Prometheus: its text format, version 0.0.4.
#ifndef PSRING_COMMON_PAGE_METRICS_TEXT_H_
#define PSRING_COMMON_PAGE_METRICS_TEXT_H_

#include <string>

#include "common/page/job_state.h"

namespace psring {

inline constexpr char kMetricsContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

// Every figure with its process's role and rank; docs/monitoring.md lists them.
std::string MetricsText(const JobState& state);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_METRICS_TEXT_H_
