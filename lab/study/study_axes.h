// What a study may vary: the table of its axes, and the runs that follow from
// the values given. Pure.
#ifndef PSRING_LAB_STUDY_STUDY_AXES_H_
#define PSRING_LAB_STUDY_STUDY_AXES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace psring {

struct WaySpec;

// How a flag's text becomes values.
enum class AxisKind {
  kWays,    // "ps-bsp,ring"; see way_spec.h
  kCounts,  // "1,2,4"
  kWords,   // "none,fp16"
  kWhole,   // a value each time that the flag is given; commas belong to it
  kSeeds,   // "3": so many, from --seed on; "1,5,9": these
};

struct Axis {
  const char* name;         // in files: "compress"
  const char* flag;         // of `psring compare`: "--compress"
  const char* worker_flag;  // that takes the value; null: the job takes it
  AxisKind kind;
  const char* initial;   // without the flag; null: all ways
  const char* label;     // of the value $: "$ workers"
  const char* question;  // that a study asks which varies it
  const char* help;
};

// The way comes first, the seed last. A new axis is a row of this table.
absl::Span<const Axis> Axes();

// The name, in files, of the axis of ways.
inline constexpr char kWayAxis[] = "mode";

// A value of each axis, in the table's order.
using Point = std::vector<std::string>;

// The value of a flag that a worker is not given.
inline constexpr char kNone[] = "none";
// The value where the axis means nothing (a ring's servers): equal to every
// other.
inline constexpr char kAny[] = "-";

// The values of every axis, in the table's order.
using AxisValues = std::vector<std::vector<std::string>>;

// `texts`: what each axis's flag was given, by the table's order.
// INVALID_ARGUMENT names the flag and the part that is wrong or comes twice.
absl::StatusOr<AxisValues> ParseAxes(
    const std::vector<std::vector<std::string>>& texts, int64_t first_seed);

// Every combination once, in the order of running: what comes first in the
// table changes fastest, so that a machine whose pace drifts is unfair to no
// way.
std::vector<Point> AllRuns(const AxisValues& values);

// What the axis is without its flag.
std::string InitialText(const Axis& axis);

size_t AxisIndex(absl::string_view name);    // aborts where there is none
const Axis& AxisOf(absl::string_view name);  // likewise
const std::string& ValueOf(const Point& point, absl::string_view axis);
// The ways among values that ParseAxes has given.
std::vector<WaySpec> WaysOf(const AxisValues& values);
// The point's way, which ParseAxes has found right.
WaySpec WayOf(const Point& point);

// "4 workers", "1 server", "slow=none".
std::string ValueLabel(const Axis& axis, const std::string& value);

// The values of those axes that take several values in `values`, without the
// seed's and the axis `except`'s: "ring, 4 workers". Empty: nothing varies.
std::string PointLabel(const Point& point, const AxisValues& values,
                       absl::string_view except = "");

// Whether both agree on every axis but the seed and `axis`.
bool SameBut(const Point& a, const Point& b, absl::string_view axis);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_AXES_H_
