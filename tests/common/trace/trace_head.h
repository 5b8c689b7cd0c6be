// What a timeline's file begins with.
#ifndef PSRING_TESTS_COMMON_TRACE_TRACE_HEAD_H_
#define PSRING_TESTS_COMMON_TRACE_TRACE_HEAD_H_

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"

namespace psring::testing {

struct TraceHead {
  std::string role = "worker";
  int rank = 0;
  std::string job = "1f";  // of a ring
  int workers = 1;
  int servers = 0;
  int64_t origin_ns = 0;
  int64_t date_ns = 1;
};

inline nlohmann::json ProcessEvent(const TraceHead& head) {
  return {{"name", "psring"},
          {"ph", "M"},
          {"args",
           {{"role", head.role},
            {"rank", head.rank},
            {"job", head.job},
            {"workers", head.workers},
            {"servers", head.servers},
            {"mode", "ring"},
            {"sync", "bsp"},
            {"staleness", 0},
            {"backup_workers", 0},
            {"origin_ns", head.origin_ns},
            {"date_ns", head.date_ns}}}};
}

inline nlohmann::json ClockEvent(int64_t ahead_ns, int64_t round_trip_ns,
                                 int64_t at_ns = 0) {
  return {{"name", "psring_clock"},
          {"ph", "M"},
          {"args",
           {{"ahead_ns", ahead_ns},
            {"round_trip_ns", round_trip_ns},
            {"at_ns", at_ns}}}};
}

}  // namespace psring::testing

#endif  // PSRING_TESTS_COMMON_TRACE_TRACE_HEAD_H_
