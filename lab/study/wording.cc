#include "lab/study/wording.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lab/page/format.h"

namespace psring {

std::string Listing(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.back());
}

std::string NameAlong(const Variant& variant, const std::string& axis) {
  return ValueLabel(AxisOf(axis), ValueOf(variant.point, axis));
}

std::string Sentence(const Group& group, const std::string& lower_case) {
  if (!group.label.empty()) return absl::StrCat(group.label, ": ", lower_case);
  std::string sentence = lower_case;
  sentence[0] = absl::ascii_toupper(static_cast<unsigned char>(sentence[0]));
  return sentence;
}

std::string Compared(const Ratio& ratio, const char* as) {
  const std::string times = FormatTimes(ratio.times);
  if (times == FormatTimes(1)) return absl::StrCat("as ", as);
  return absl::StrCat(times, " times as ", as,
                      ratio.tied ? " (no clear difference)" : "");
}

bool Varies(const Comparison& comparison, const Axis& axis) {
  return axis.kind != AxisKind::kSeeds &&
         comparison.values[AxisIndex(axis.name)].size() > 1;
}

}  // namespace psring
