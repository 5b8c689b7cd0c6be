// Other systems' collectives, where this machine has them.
#ifndef PSRING_LAB_BENCH_PEERS_H_
#define PSRING_LAB_BENCH_PEERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/contender.h"

namespace psring {

inline constexpr char kOpenMpi[] = "openmpi";
inline constexpr char kGloo[] = "gloo";

// Whether a peer was found, and its version or why it was not.
struct PeerFinding {
  std::string name;
  bool found = false;
  std::string detail;
};

// A python3 whose torch has Gloo: the active one, or that of the torch which
// psring was built with. NOT_FOUND says what was looked at.
struct GlooPython {
  std::string python;
  std::string torch_version;
};
absl::StatusOr<GlooPython> FindGlooPython();

// Open MPI's allreduce, compiled into `directory`, which outlives it as `stage`
// does. NOT_FOUND: this machine has no mpicc or no mpirun that works.
absl::StatusOr<std::unique_ptr<Contender>> MakeOpenMpi(
    const Stage& stage, const std::string& directory, std::string* version);

// Gloo's allreduce, its script written into `directory`.
absl::StatusOr<std::unique_ptr<Contender>> MakeGloo(
    const Stage& stage, const GlooPython& python, const std::string& directory);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_PEERS_H_
