#include "lab/host/machine.h"

#include <sys/utsname.h>

#include "absl/strings/str_cat.h"
#include "common/host_cores.h"
#include "common/host_hardware.h"

namespace psring {
namespace {

std::string System() {
  utsname name = {};
  if (uname(&name) != 0) return "unknown";
  return absl::StrCat(name.sysname, " ", name.release, ", ", name.machine);
}

}  // namespace

Machine DescribeMachine() {
  return {HostCores(), CpuName(), MemoryBytes(), System()};
}

}  // namespace psring
