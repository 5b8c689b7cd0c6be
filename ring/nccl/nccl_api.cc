#include "ring/nccl/nccl_api.h"

#include "absl/strings/str_cat.h"

namespace psring {

std::string NcclVersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

std::map<std::string, std::string> SharedGpuVariables(int rank) {
  return {{"NCCL_HOSTID", absl::StrCat("psring-", rank)},
          {"NCCL_NET", "Socket"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_MAX_CTAS", "1"}};
}

}  // namespace psring
