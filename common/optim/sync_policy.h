// The consistency policies of the parameter server: what an update is made of,
// and how far a worker may be ahead of the others. One table, which flags,
// help, checks, records and reports read; ps/step_gate.h acts on it.
#ifndef PSRING_COMMON_OPTIM_SYNC_POLICY_H_
#define PSRING_COMMON_OPTIM_SYNC_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "protos/cluster.pb.h"

namespace psring {

struct SyncPolicy {
  // How many steps a worker may be ahead of the slowest one.
  enum class Lead {
    kNone,       // all take every step together
    kStaleness,  // --staleness
    kUnlimited,
  };

  proto::Sync sync;
  const char* name;  // the value of --sync
  Lead lead;
  // One step is open at a time, and the mean of its gradients is one update.
  // Otherwise every gradient is an update of its own, as it comes.
  bool barrier;
  const char* help;         // what it means, in a few words
  const char* explanation;  // for readers of a report; "$LEAD" is "3 steps"
};

// In the order in which people are told of them. A new policy is a row of this
// table.
absl::Span<const SyncPolicy> SyncPolicies();

// The policy of a job; a ring's is the first row, as all take every step
// together there.
const SyncPolicy& PolicyOf(const proto::JobSpec& spec);

// Whether a step ends with one update, the mean of all workers' gradients.
bool TakesEveryGradient(const proto::JobSpec& spec);

// Null: there is none of this name.
const SyncPolicy* FindSyncPolicy(absl::string_view name);

// Steps that a worker may be ahead of the slowest one, with a --staleness of
// `staleness`.
int64_t MaxLead(const SyncPolicy& policy, int64_t staleness);

// Whether it is told with the number of those steps: "ssp:3".
bool TakesBound(const SyncPolicy& policy);

// "ssp:3" for `bound` "3"; just the name where the policy takes none.
std::string NameWithBound(const SyncPolicy& policy, absl::string_view bound);

// A policy as the user writes it: "bsp", "ssp:3", or "ssp", whose bound is said
// elsewhere.
struct SyncChoice {
  const SyncPolicy* policy = nullptr;
  int64_t staleness = -1;  // -1: not said
};
inline constexpr int64_t kMaxStaleness = 1000000;

// INVALID_ARGUMENT names what can be written.
absl::StatusOr<SyncChoice> ParseSync(absl::string_view text);

// All that can be written: "bsp, ssp:K, async".
std::string SyncForms();

// Whether gradients may be computed on parameters that others have changed
// since.
bool IsStale(const SyncPolicy& policy);

// The names of all policies for which `pick` is true, as in a sentence: "ssp
// and async".
std::string NamesOf(bool (*pick)(const SyncPolicy&));

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_SYNC_POLICY_H_
