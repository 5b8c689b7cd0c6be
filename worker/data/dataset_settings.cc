#include "worker/data/dataset_settings.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace psring {

absl::Status ParseDatasetNumber(absl::string_view part, absl::string_view text,
                                int64_t least, int64_t most, int64_t& value) {
  if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", part, "': expected a number from ", least, " to ", most));
}

absl::Status ParseDatasetSettings(absl::Span<const absl::string_view> parts,
                                  absl::Span<const DatasetSetting> known) {
  std::set<absl::string_view> seen;
  for (const absl::string_view part : parts) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto setting = std::find_if(
        known.begin(), known.end(),
        [&](const auto& candidate) { return candidate.key == pair.first; });
    if (setting == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part, "' is none of ",
          absl::StrJoin(known, ", ", [](std::string* text, const auto& each) {
            absl::StrAppend(text, each.key, "=", each.letter);
          })));
    }
    if (!seen.insert(pair.first).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "': ", pair.first, "= comes twice"));
    }
    absl::Status status = ParseDatasetNumber(part, pair.second, setting->least,
                                             setting->most, *setting->value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace psring
