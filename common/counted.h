// A number of things, in words for people.
#ifndef PSRING_COMMON_COUNTED_H_
#define PSRING_COMMON_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace psring {

// "1 server", "2 servers", "0 servers".
inline std::string Counted(int64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

}  // namespace psring

#endif  // PSRING_COMMON_COUNTED_H_
