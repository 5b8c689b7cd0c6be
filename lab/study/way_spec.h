// The ways of training that `psring compare` knows: a ring, or parameter
// servers with one of the policies of common/optim/sync_policy.h. The policy
// "x" is the way "ps-x" or, where it takes a bound, "ps-x:K".
#ifndef PSRING_LAB_STUDY_WAY_SPEC_H_
#define PSRING_LAB_STUDY_WAY_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

struct SyncPolicy;

struct WaySpec {
  std::string name;                    // as the user wrote it: "ps-ssp:3"
  const SyncPolicy* policy = nullptr;  // the servers'; null: no servers
  bool ddp = false;                    // torch.distributed's, of scripts only
  int64_t staleness = 0;               // where the policy takes a bound
  std::vector<std::string> worker_flags;  // "--backup-workers=1"

  bool has_servers() const { return policy != nullptr; }
  bool is_ring() const { return policy == nullptr && !ddp; }
  // Whether a step waits for all gradients and applies their mean.
  bool synchronous() const;
  // Whether its workers run without flags of their own.
  bool plain() const { return worker_flags.empty(); }
  // "bsp", "ssp:3", as scripts are told; of ways with servers.
  std::string sync() const;
  // What every worker is told: "--sync=ssp", "--staleness=3", its own flags.
  std::vector<std::string> Flags() const;
};

// "ps-bsp,ps-ssp:3,ps-async,ring", and "ddp" for a script. A way may carry
// flags of its workers: "ps-bsp+backup-workers=1". INVALID_ARGUMENT names the
// part that is none of these, or that comes twice.
absl::StatusOr<std::vector<WaySpec>> ParseWays(absl::string_view text);

// Each of them once, with a bound of 3: what is compared unless the user says.
std::string AllWays();

// A line for each with what a step waits for, for --help.
std::string WaysHelp();

// What the way means, in a few sentences for people who are new to it.
std::string Explain(const WaySpec& spec);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_WAY_SPEC_H_
