// The KEY=NUMBER parts of a data set's name, as in digits:train=100,test=20.
#ifndef PSRING_WORKER_DATA_DATASET_SETTINGS_H_
#define PSRING_WORKER_DATA_DATASET_SETTINGS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace psring {

struct DatasetSetting {
  absl::string_view key;
  absl::string_view letter;  // that stands for its number in messages: train=N
  int64_t least = 1, most = 0;
  int64_t* value = nullptr;  // which it sets
};

// Each key at most once, in any order. INVALID_ARGUMENT names the part that is
// wrong.
absl::Status ParseDatasetSettings(absl::Span<const absl::string_view> parts,
                                  absl::Span<const DatasetSetting> known);

// Of the number in `part`, from `least` to `most`, that `text` is.
absl::Status ParseDatasetNumber(absl::string_view part, absl::string_view text,
                                int64_t least, int64_t most, int64_t& value);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_DATASET_SETTINGS_H_
