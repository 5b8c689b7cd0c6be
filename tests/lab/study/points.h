// Points and values of axes for tests of studies.
#ifndef PSRING_TESTS_LAB_STUDY_POINTS_H_
#define PSRING_TESTS_LAB_STUDY_POINTS_H_

#include <string>
#include <utility>
#include <vector>

#include "lab/study/study_axes.h"

namespace psring {

using AxisTexts = std::vector<std::pair<std::string, std::string>>;

// ps-bsp with 2 workers, 1 server and seed 0, but for what `changes` say.
inline Point At(const AxisTexts& changes) {
  Point point(Axes().size(), kNone);
  point[AxisIndex("mode")] = "ps-bsp";
  point[AxisIndex("workers")] = "2";
  point[AxisIndex("servers")] = "1";
  point[AxisIndex("seed")] = "0";
  for (const auto& [axis, value] : changes) point[AxisIndex(axis)] = value;
  return point;
}

// What ParseAxes makes of flags that are right.
inline AxisValues ValuesOf(const AxisTexts& flags) {
  std::vector<std::vector<std::string>> texts(Axes().size());
  for (const auto& [axis, text] : flags) {
    texts[AxisIndex(axis)].push_back(text);
  }
  return ParseAxes(texts, 0).value();
}

}  // namespace psring

#endif  // PSRING_TESTS_LAB_STUDY_POINTS_H_
