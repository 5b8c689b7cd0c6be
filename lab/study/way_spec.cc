#include "lab/study/way_spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/optim/sync_policy.h"
#include "lab/host/arguments.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

constexpr char kPs[] = "ps-";
constexpr char kRing[] = "ring";
constexpr char kDdp[] = "ddp";
constexpr int64_t kUsualStaleness = 3;

std::string WayOf(const SyncPolicy& policy, absl::string_view bound) {
  return absl::StrCat(kPs, NameWithBound(policy, bound));
}

absl::StatusOr<WaySpec> ParseBareWay(absl::string_view text) {
  WaySpec spec;
  spec.name = std::string(text);
  if (text == kRing) return spec;
  spec.ddp = text == kDdp;
  if (spec.ddp) return spec;
  absl::string_view sync = text;
  const auto choice = absl::ConsumePrefix(&sync, kPs)
                          ? ParseSync(sync)
                          : absl::InvalidArgumentError("");
  if (choice.ok() && TakesBound(*choice->policy) == (choice->staleness >= 0)) {
    spec.policy = choice->policy;
    spec.staleness = std::max(choice->staleness, int64_t{0});
    return spec;
  }
  Strings known;
  for (const SyncPolicy& policy : SyncPolicies()) {
    known.push_back(WayOf(policy, "K"));
    if (TakesBound(policy)) {
      absl::StrAppend(&known.back(), " (K from 0 to ", kMaxStaleness, ")");
    }
  }
  known.push_back(kRing);
  known.push_back("ddp (of a script)");
  return absl::InvalidArgumentError(absl::StrCat(
      "--modes: \"", text, "\" is not one of ", absl::StrJoin(known, ", "),
      "; + adds a flag of its workers"));
}

absl::StatusOr<WaySpec> ParseWay(absl::string_view text) {
  const Strings parts = absl::StrSplit(text, '+');
  auto spec = ParseBareWay(parts[0]);
  if (!spec.ok()) return spec;
  std::set<std::string> names;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty() || parts[i][0] == '-') {
      return absl::InvalidArgumentError(
          absl::StrCat("--modes: in \"", text,
                       "\" the + is not followed by a flag of its "
                       "workers, without dashes"));
    }
    const std::string flag = absl::StrCat("--", parts[i]);
    const std::string name = FlagName(flag);
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--modes: \"", text, "\" has ", name, " twice"));
    }
    spec->worker_flags.push_back(flag);
  }
  spec->name = std::string(text);
  return spec;
}

std::string ExplainBare(const WaySpec& spec) {
  if (spec.ddp) {
    return "torch.distributed exchanges the gradients (Gloo, in buckets as "
           "DistributedDataParallel has them): what a script without psring "
           "would use. All take every step together.";
  }
  if (!spec.has_servers()) {
    return "No servers: the workers stand in a ring and pass partial sums of "
           "the gradients around it. Each worker ends up with the whole sum of "
           "one part of the model, and passes what it makes of this part to "
           "all others. All take every step together.";
  }
  const std::string lead =
      absl::StrCat(spec.staleness, " step", spec.staleness == 1 ? "" : "s");
  return absl::StrReplaceAll(spec.policy->explanation, {{"$LEAD", lead}});
}

}  // namespace

bool WaySpec::synchronous() const {
  return policy == nullptr || policy->barrier;
}

std::string WaySpec::sync() const {
  return NameWithBound(*policy, absl::StrCat(staleness));
}

std::vector<std::string> WaySpec::Flags() const {
  Strings flags;
  if (policy != nullptr) {
    flags.push_back(absl::StrCat("--sync=", policy->name));
    if (TakesBound(*policy)) {
      flags.push_back(absl::StrCat("--staleness=", staleness));
    }
  }
  flags.insert(flags.end(), worker_flags.begin(), worker_flags.end());
  return flags;
}

absl::StatusOr<std::vector<WaySpec>> ParseWays(absl::string_view text) {
  std::vector<WaySpec> specs;
  std::set<std::string> names;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    auto spec = ParseWay(part);
    if (!spec.ok()) return spec.status();
    if (!names.insert(spec->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--modes: ", spec->name, " comes twice"));
    }
    specs.push_back(*std::move(spec));
  }
  return specs;
}

std::string AllWays() {
  Strings ways;
  for (const SyncPolicy& policy : SyncPolicies()) {
    ways.push_back(WayOf(policy, absl::StrCat(kUsualStaleness)));
  }
  ways.push_back(kRing);
  return absl::StrJoin(ways, ",");
}

std::string WaysHelp() {
  std::string text;
  const auto add = [&](const std::string& way, const std::string& what) {
    absl::StrAppendFormat(&text, "  %-9s  %s\n", way, what);
  };
  for (const SyncPolicy& policy : SyncPolicies()) {
    add(WayOf(policy, "K"), policy.help);
  }
  add(kRing, "every worker, each step; there are no servers");
  add(kDdp, "the same, over torch.distributed; for scripts");
  return text;
}

std::string Explain(const WaySpec& spec) {
  std::string text = ExplainBare(spec);
  if (!spec.plain()) {
    absl::StrAppend(&text, " Here its workers run with ",
                    absl::StrJoin(spec.worker_flags, " "), ".");
  }
  return text;
}

}  // namespace psring
