// Numbers of things, and lists of them, in words for people.
#ifndef PSRING_COMMON_COUNTED_H_
#define PSRING_COMMON_COUNTED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace psring {

// "1 server", "2 servers", "0 servers".
inline std::string Counted(int64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

// "worker 1, worker 2"; of more than eight, the first six: "..., and 34 more".
template <typename T>
std::string ShortList(const std::vector<T>& things) {
  constexpr size_t kMostListed = 8, kListed = 6;
  if (things.size() <= kMostListed) return absl::StrJoin(things, ", ");
  return absl::StrCat(
      absl::StrJoin(things.begin(), things.begin() + kListed, ", "), ", and ",
      things.size() - kListed, " more");
}

}  // namespace psring

#endif  // PSRING_COMMON_COUNTED_H_
