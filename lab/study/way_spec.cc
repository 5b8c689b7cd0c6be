#include "lab/study/way_spec.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace psring {
namespace {

constexpr int kMaxStaleness = 1000000;

absl::StatusOr<WaySpec> ParseBareWay(absl::string_view text) {
  const std::string name(text);
  if (name == "ring") return WaySpec{name, "ring", "", 0, {}};
  if (name == "ps-bsp") return WaySpec{name, "ps", "bsp", 0, {}};
  if (name == "ps-async") return WaySpec{name, "ps", "async", 0, {}};
  int staleness = 0;
  if (absl::ConsumePrefix(&text, "ps-ssp:") &&
      absl::SimpleAtoi(text, &staleness) && staleness >= 0 &&
      staleness <= kMaxStaleness) {
    return WaySpec{name, "ps", "ssp", staleness, {}};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--modes: \"", name, "\" is not one of ps-bsp, ps-ssp:K (K from 0 to ",
      kMaxStaleness, "), ps-async, ring; + adds a flag of its workers"));
}

absl::StatusOr<WaySpec> ParseWay(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '+');
  auto spec = ParseBareWay(parts[0]);
  if (!spec.ok()) return spec;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty() || parts[i][0] == '-') {
      return absl::InvalidArgumentError(
          absl::StrCat("--modes: in \"", text,
                       "\" the + is not followed by a flag of its "
                       "workers, without dashes"));
    }
    spec->worker_flags.push_back(absl::StrCat("--", parts[i]));
  }
  spec->name = std::string(text);
  return spec;
}

}  // namespace

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

namespace {

std::string ExplainBare(const WaySpec& spec) {
  if (spec.mode == "ring") {
    return "No servers: the workers stand in a ring and pass partial sums of "
           "the gradients around it until everybody has the whole sum, then "
           "each updates its own copy of the model. All take every step "
           "together.";
  }
  if (spec.sync == "bsp") {
    return "Bulk synchronous. Servers hold the model. In each step they wait "
           "for every worker's gradient, sum them, update once and answer with "
           "the new parameters. Nobody is ever behind; everybody waits for the "
           "slowest.";
  }
  const std::string every_gradient =
      "Servers apply each worker's gradient as an update of its own, in full, "
      "as it comes: N workers make N updates in the time of one, so the model "
      "moves faster, and diverges sooner. ";
  if (spec.sync == "ssp") {
    return absl::StrCat(
        "Stale synchronous. ", every_gradient, "A worker may run at most ",
        spec.staleness, " step", spec.staleness == 1 ? "" : "s",
        " ahead of the slowest one: short delays cost nothing, and a gradient "
        "may be computed on parameters that are a little old.");
  }
  return absl::StrCat(
      "Asynchronous. ", every_gradient,
      "Nobody waits for anybody: the fastest pace, but a gradient may be "
      "computed on parameters of any age.");
}

}  // namespace

std::string Explain(const WaySpec& spec) {
  std::string text = ExplainBare(spec);
  if (!spec.worker_flags.empty()) {
    absl::StrAppend(&text, " Here its workers run with ",
                    absl::StrJoin(spec.worker_flags, " "), ".");
  }
  return text;
}

}  // namespace psring
