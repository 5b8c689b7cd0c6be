#include "ring/ring_exchange.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace psring {

absl::Status AtBucket(int64_t step, int bucket, const absl::Status& error) {
  return absl::Status(error.code(),
                      absl::StrCat("step ", step, ", bucket ", bucket, ": ",
                                   std::string(error.message())));
}

}  // namespace psring
