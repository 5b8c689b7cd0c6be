#include "common/cluster/process_names.h"

#include "absl/strings/str_cat.h"
#include "common/printable.h"

namespace psring {

const char* NameOf(proto::Role role) {
  return role == proto::PS ? "ps" : "worker";
}

const char* NameOf(proto::Mode mode) {
  return mode == proto::RING ? "ring" : "ps";
}

std::string NameAndRank(const proto::Process& process) {
  const std::string name = NameOf(process.role());
  return process.rank() < 0 ? name : absl::StrCat(name, " ", process.rank());
}

std::string Describe(const proto::Process& process) {
  return absl::StrCat(NameAndRank(process), " (host ", process.host(), ", pid ",
                      process.pid(), ")");
}

std::string Describe(const proto::Join& join) {
  proto::Process process;
  process.set_role(join.role());
  process.set_rank(join.wanted_rank());
  const std::string host = Printable(join.host(), 64);
  process.set_host(host.substr(0, host.find('\n')));
  process.set_pid(join.pid());
  return Describe(process);
}

std::string DescribeSeconds(absl::Duration d) {
  return absl::StrCat(
      static_cast<int64_t>(absl::ToDoubleSeconds(d) * 10) / 10.0, " s");
}

}  // namespace psring
