// Other systems' collectives and servers, where this machine has them.
#ifndef PSRING_LAB_BENCH_PEERS_H_
#define PSRING_LAB_BENCH_PEERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/contender.h"

namespace psring {

inline constexpr char kOpenMpi[] = "openmpi";
inline constexpr char kIntelMpi[] = "intelmpi";
inline constexpr char kOneCcl[] = "oneccl";
inline constexpr char kGloo[] = "gloo";
inline constexpr char kPsLite[] = "ps-lite";

// Whether a peer was found, and its version or why it was not.
struct PeerFinding {
  std::string name;
  bool found = false;
  std::string detail;
  std::string failure = {};  // after which it was left out; empty: none
};

// A python3 whose torch has Gloo: the active one, or that of the torch which
// psring was built with. NOT_FOUND says what was looked at.
struct GlooPython {
  std::string python;
  std::string torch_version;
};
absl::StatusOr<GlooPython> FindGlooPython();

// The allreduce of Open MPI, Intel MPI or oneCCL (`name`), compiled into
// `directory`, which outlives it as `stage` does. Intel's are looked for in
// $PSRING_PEERS, a Python environment; else in ~/.cache/psring/peers. NOT_FOUND
// says what this machine lacks, and how to get it.
absl::StatusOr<std::unique_ptr<Contender>> MakeMpiPeer(
    const char* name, const Stage& stage, const std::string& directory,
    std::string* version);

// Gloo's allreduce, its script written into `directory`.
absl::StatusOr<std::unique_ptr<Contender>> MakeGloo(
    const Stage& stage, const GlooPython& python, const std::string& directory);

// Looks for a built tree of ps-lite in `tree`. NOT_FOUND says what it lacks and
// how to build it.
absl::Status CheckPsLiteTree(const std::string& tree);

// A step through ps-lite's servers, compiled into `directory`, which outlives
// it as `stage` does, with the headers and the library of `tree`, or "": none
// was named. NOT_FOUND as CheckPsLiteTree.
absl::StatusOr<std::unique_ptr<Contender>> MakePsLite(
    const Stage& stage, const std::string& tree, const std::string& directory);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_PEERS_H_
