// common/cluster/environment.h: what launchers say, lines of NAME=VALUE.
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/cluster/environment.h"
#include "common/cluster/script_placement.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

Variables VariablesOf(const std::string& text) {
  Variables variables;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    variables.insert(variable);
  }
  return variables;
}

void CheckEnvironment(const LaunchEnvironment& e) {
  if (!e.source.empty()) {
    Require(e.rank >= 0 && e.rank < e.size, "a rank is one of the job's");
    Require(e.local_rank < e.size, "and on its host too");
  }
  Require(e.coordinator_port >= 0 && e.coordinator_port <= 65535,
          "a port is one");
  const auto placed = PlaceScript({}, e);
  if (!placed.ok()) return RequireReason(placed.status());
  Require(placed->rank >= 0 && placed->rank < placed->num_workers,
          "a script has a place in its job");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      "PSRING_RANK=1\nPSRING_SIZE=4\nPSRING_LOCAL_RANK=1\n"
      "PSRING_COORDINATOR=[::1]:7000\nPSRING_COORDINATOR_HOSTED=1",
      "RANK=2\nWORLD_SIZE=4\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\n"
      "MASTER_ADDR=node1\nMASTER_PORT=29500\nTORCHELASTIC_USE_AGENT_STORE=True",
      "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\n"
      "OMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=2\n"
      "PMIX_NAMESPACE=123.4",
      "SLURM_PROCID=3\nSLURM_NTASKS=4\nSLURM_LOCALID=1\nSLURM_STEP_ID=0\n"
      "SLURM_JOB_ID=4711\nSLURM_STEP_NODELIST=n[01-02,07],m3\nRANK=1",
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  const auto found =
      psring::DetectEnvironment(psring::fuzz::VariablesOf(input.Rest()));
  if (found.ok()) {
    psring::fuzz::CheckEnvironment(*found);
  } else {
    psring::fuzz::RequireReason(found.status());
  }
  return 0;
}
