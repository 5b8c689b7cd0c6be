// How far the coordinator's clock is ahead of a process's over a whole job,
// from what the process found out about it now and then: clocks run apart, by
// some 50 ms an hour where nothing disciplines them. They jump apart where one
// of the two processes is stopped, as its clock stands still then. Pure.
#ifndef PSRING_COMMON_TRACE_CLOCK_READINGS_H_
#define PSRING_COMMON_TRACE_CLOCK_READINGS_H_

#include <cstdint>
#include <vector>

namespace psring {

struct ClockReading {
  int64_t at_ns = 0;          // by the process's clock
  int64_t ahead_ns = 0;       // the coordinator's clock
  int64_t round_trip_ns = 0;  // `ahead_ns` is off by half of it at most
};

// Whether a clock that is ahead by so much more has jumped: a stop takes 2 s.
bool IsJump(int64_t ahead_more_ns);

// Those that no other knows better at their own moment, by time: a reading is
// worth less with every second away from it, as ClockOffset has it
// (common/cluster/clock_offset.h), and nothing beyond a jump. The first one
// after a jump says when that was.
std::vector<ClockReading> BestReadings(std::vector<ClockReading> readings);

// At `at_ns`, on the straight line between the readings before and after it;
// outside of them as the nearest has it, and until a jump as the one before it
// has it. `readings` are BestReadings, and not
// empty.
int64_t AheadAt(const std::vector<ClockReading>& readings, int64_t at_ns);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_CLOCK_READINGS_H_
