#include "ring/nccl/nccl_api.h"

#include "absl/strings/str_cat.h"

namespace psring {

std::string NcclVersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

std::map<std::string, std::string> SharedGpuVariables(int rank,
                                                      bool on_one_host) {
  std::map<std::string, std::string> variables = {
      {"NCCL_HOSTID", absl::StrCat("psring-", rank)},
      {"NCCL_NET", "Socket"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_MAX_CTAS", "1"}};
  if (on_one_host) variables["NCCL_SOCKET_IFNAME"] = "lo";
  return variables;
}

}  // namespace psring
