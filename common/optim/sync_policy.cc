#include "common/optim/sync_policy.h"

#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

#define PSRING_EVERY_GRADIENT                                               \
  "Servers apply each worker's gradient as an update of its own, in full, " \
  "as it comes: N workers make N updates in the time of one, so the model " \
  "moves faster, and diverges sooner. "

using Lead = SyncPolicy::Lead;

constexpr SyncPolicy kPolicies[] = {
    {proto::BSP, "bsp", Lead::kNone, /*barrier=*/true,
     "every worker, each step",
     "Bulk synchronous. Servers hold the model. In each step they wait for "
     "every worker's gradient, sum them, update once and answer with the new "
     "parameters. Nobody is ever behind; everybody waits for the slowest."},
    {proto::SSP, "ssp", Lead::kStaleness, /*barrier=*/false,
     "at most K steps ahead of the slowest",
     "Stale synchronous. " PSRING_EVERY_GRADIENT
     "A worker may run at most $LEAD ahead of the slowest one: short delays "
     "cost nothing, and a gradient may be computed on parameters that are a "
     "little old."},
    {proto::ASYNC, "async", Lead::kUnlimited, /*barrier=*/false, "nobody waits",
     "Asynchronous. " PSRING_EVERY_GRADIENT
     "Nobody waits for anybody: the fastest pace, but a gradient may be "
     "computed on parameters of any age."},
};

#undef PSRING_EVERY_GRADIENT

}  // namespace

absl::Span<const SyncPolicy> SyncPolicies() { return kPolicies; }

const SyncPolicy& PolicyOf(const proto::JobSpec& spec) {
  for (const SyncPolicy& policy : kPolicies) {
    if (spec.mode() != proto::RING && policy.sync == spec.sync()) return policy;
  }
  return kPolicies[0];
}

bool TakesEveryGradient(const proto::JobSpec& spec) {
  return PolicyOf(spec).barrier && spec.backup_workers() == 0;
}

const SyncPolicy* FindSyncPolicy(absl::string_view name) {
  for (const SyncPolicy& policy : kPolicies) {
    if (policy.name == name) return &policy;
  }
  return nullptr;
}

int64_t MaxLead(const SyncPolicy& policy, int64_t staleness) {
  switch (policy.lead) {
    case Lead::kNone:
      return 0;
    case Lead::kStaleness:
      return staleness;
    case Lead::kUnlimited:
      return std::numeric_limits<int64_t>::max();
  }
  return 0;
}

bool TakesBound(const SyncPolicy& policy) {
  return policy.lead == Lead::kStaleness;
}

std::string NameWithBound(const SyncPolicy& policy, absl::string_view bound) {
  return TakesBound(policy) ? absl::StrCat(policy.name, ":", bound)
                            : policy.name;
}

std::string SyncForms() {
  return absl::StrJoin(kPolicies, ", ",
                       [](std::string* out, const SyncPolicy& policy) {
                         out->append(NameWithBound(policy, "K"));
                       });
}

absl::StatusOr<SyncChoice> ParseSync(absl::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  SyncChoice choice = {FindSyncPolicy(parts[0]), -1};
  const bool bounded = parts.size() > 1;
  if (choice.policy == nullptr || (bounded && !TakesBound(*choice.policy))) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not one of ", SyncForms()));
  }
  if (bounded &&
      !(absl::SimpleAtoi(parts[1], &choice.staleness) &&
        choice.staleness >= 0 && choice.staleness <= kMaxStaleness)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\": K in ", NameWithBound(*choice.policy, "K"),
        " is a number of steps from 0 to ", kMaxStaleness));
  }
  return choice;
}

bool IsStale(const SyncPolicy& policy) { return !policy.barrier; }

std::string NamesOf(bool (*pick)(const SyncPolicy&)) {
  std::vector<std::string> names;
  for (const SyncPolicy& policy : kPolicies) {
    if (pick(policy)) names.push_back(policy.name);
  }
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

}  // namespace psring
