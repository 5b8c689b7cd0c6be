#include "lab/study/study_axes.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/optim/compression.h"
#include "common/slowdown.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

constexpr int kMaxCount = 1024;
constexpr int kMaxSeeds = 1000;
constexpr int64_t kMaxSeed = int64_t{1} << 40;

constexpr Axis kAxes[] = {
    {kWayAxis, "--modes", nullptr, AxisKind::kWays,
     /*initial=*/nullptr, "$",
     "Which way of exchanging gradients reaches the same accuracy first?",
     "Ways to compare"},
    {"workers", "--workers", nullptr, AxisKind::kCounts, "2", "$ workers",
     "What do more workers bring?", "Number of workers: 2, or 1,2,4"},
    {"servers", "--servers", nullptr, AxisKind::kCounts, "1", "$ servers",
     "How many servers are best?",
     "Number of servers in the ps ways: 1, or 1,2,4"},
    {"slow", "--slow", "--slow", AxisKind::kWhole, kNone, "slow=$",
     "What does a slow worker change?",
     "Fault of speed, as of psring worker; repeat the flag for another value"},
    {"link", "--link", nullptr, AxisKind::kWhole, kNone, "link=$",
     "What does a slow link change?",
     "Puts every process on a host of its own (needs root) with links of RATE, "
     "such as 1gbit, or slows down one link: worker:RANK:RATE; repeat the flag "
     "for another value"},
    {"compress", "--compress", "--compress", AxisKind::kWords, kNone,
     "compress=$", "What does compression change?",
     "Compression of gradients, as of psring worker: none, or none,fp16"},
    {"seed", "--seeds", "--seed", AxisKind::kSeeds, "1", "seed $", "",
     "Number of seeds, counted from --seed, or a list of them"},
};

absl::Status Wrong(const Axis& axis, absl::string_view part,
                   absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(axis.flag, ": \"", part, "\" ", why));
}

absl::Status CheckNumber(const Axis& axis, const std::string& text,
                         int64_t least, int64_t most) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most &&
      absl::StrCat(number) == text) {
    return absl::OkStatus();
  }
  return Wrong(axis, text,
               absl::StrCat("is not a number from ", least, " to ", most));
}

// The seeds themselves, where `parts` is their number.
absl::StatusOr<Strings> Seeds(const Axis& axis, Strings parts,
                              int64_t first_seed) {
  if (parts.size() == 1) {
    absl::Status s = CheckNumber(axis, parts[0], 1, kMaxSeeds);
    if (!s.ok()) return s;
    const int64_t count = std::stoll(parts[0]);
    parts.clear();
    for (int64_t i = 0; i < count; ++i) {
      parts.push_back(absl::StrCat(first_seed + i));
    }
  }
  for (const std::string& part : parts) {
    absl::Status s = CheckNumber(axis, part, 0, kMaxSeed);
    if (!s.ok()) return s;
  }
  return parts;
}

// A worker would find it out only in the run that has it.
absl::Status CheckPart(const Axis& axis, const std::string& part) {
  if (part.empty()) return Wrong(axis, part, "is empty");
  if (axis.kind == AxisKind::kCounts) {
    return CheckNumber(axis, part, 1, kMaxCount);
  }
  if (part == kNone) return absl::OkStatus();
  const absl::string_view name = axis.name;
  if (name == "compress") return ParseCompression(part).status();
  if (name == "slow") return Slowdown::Create({part}, 0).status();
  return absl::OkStatus();
}

absl::Status CheckParts(const Axis& axis, const Strings& parts) {
  std::set<std::string> seen;
  for (const std::string& part : parts) {
    if (absl::Status s = CheckPart(axis, part); !s.ok()) return s;
    if (!seen.insert(part).second) return Wrong(axis, part, "comes twice");
  }
  if (axis.kind != AxisKind::kWays) return absl::OkStatus();
  return ParseWays(absl::StrJoin(parts, ",")).status();
}

absl::StatusOr<Strings> ParseAxis(const Axis& axis, const Strings& texts,
                                  int64_t first_seed) {
  Strings parts = texts;
  if (parts.empty()) parts = {InitialText(axis)};
  if (axis.kind != AxisKind::kWhole) {
    parts = absl::StrSplit(absl::StrJoin(parts, ","), ',');
  }
  if (axis.kind == AxisKind::kSeeds) {
    auto seeds = Seeds(axis, std::move(parts), first_seed);
    if (!seeds.ok()) return seeds.status();
    parts = *std::move(seeds);
  }
  if (absl::Status s = CheckParts(axis, parts); !s.ok()) return s;
  return parts;
}

}  // namespace

absl::Span<const Axis> Axes() { return kAxes; }

std::string InitialText(const Axis& axis) {
  return axis.initial == nullptr ? AllWays() : axis.initial;
}

size_t AxisIndex(absl::string_view name) {
  for (size_t i = 0; i < std::size(kAxes); ++i) {
    if (name == kAxes[i].name) return i;
  }
  std::abort();
}

const Axis& AxisOf(absl::string_view name) { return kAxes[AxisIndex(name)]; }

const std::string& ValueOf(const Point& point, absl::string_view axis) {
  return point[AxisIndex(axis)];
}

std::vector<WaySpec> WaysOf(const AxisValues& values) {
  const std::string text = absl::StrJoin(values[AxisIndex(kWayAxis)], ",");
  return ParseWays(text).value();
}

WaySpec WayOf(const Point& point) {
  return ParseWays(ValueOf(point, kWayAxis)).value().front();
}

absl::StatusOr<AxisValues> ParseAxes(const std::vector<Strings>& texts,
                                     int64_t first_seed) {
  AxisValues values;
  for (size_t i = 0; i < std::size(kAxes); ++i) {
    auto axis_values = ParseAxis(kAxes[i], texts[i], first_seed);
    if (!axis_values.ok()) return axis_values.status();
    values.push_back(*std::move(axis_values));
  }
  return values;
}

std::vector<Point> AllRuns(const AxisValues& values) {
  std::vector<Point> runs;
  std::set<Point> seen;
  std::vector<size_t> odometer(values.size());
  while (true) {
    Point point;
    for (size_t i = 0; i < values.size(); ++i) {
      point.push_back(values[i][odometer[i]]);
    }
    if (!WayOf(point).has_servers()) {
      point[AxisIndex("servers")] = std::string(kAny);
    }
    if (seen.insert(point).second) runs.push_back(std::move(point));
    size_t wheel = 0;
    while (wheel < values.size() && ++odometer[wheel] == values[wheel].size()) {
      odometer[wheel++] = 0;
    }
    if (wheel == values.size()) return runs;
  }
}

std::string ValueLabel(const Axis& axis, const std::string& value) {
  std::string label = absl::StrReplaceAll(axis.label, {{"$", value}});
  if (value == "1") label = std::string(absl::StripSuffix(label, "s"));
  return label;
}

std::string PointLabel(const Point& point, const AxisValues& values,
                       absl::string_view except) {
  Strings parts;
  for (size_t i = 0; i < std::size(kAxes); ++i) {
    const Axis& axis = kAxes[i];
    if (axis.kind == AxisKind::kSeeds || axis.name == except) continue;
    if (values[i].size() < 2 || point[i] == kAny) continue;
    parts.push_back(ValueLabel(axis, point[i]));
  }
  return absl::StrJoin(parts, ", ");
}

bool SameBut(const Point& a, const Point& b, absl::string_view axis) {
  for (size_t i = 0; i < std::size(kAxes); ++i) {
    if (kAxes[i].kind == AxisKind::kSeeds || kAxes[i].name == axis) continue;
    if (a[i] != b[i] && a[i] != kAny && b[i] != kAny) return false;
  }
  return true;
}

}  // namespace psring
