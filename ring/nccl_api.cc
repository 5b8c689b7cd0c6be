#include "ring/nccl_api.h"

#include "absl/strings/str_cat.h"

namespace psring {

std::string NcclVersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

}  // namespace psring
