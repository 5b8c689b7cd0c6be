#include "cli/findings.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

const char* Mark(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kGood:
      return "ok";
    case Finding::Kind::kAbsent:
      return "-";
    case Finding::Kind::kFault:
      return "FAULT";
  }
  return "";
}

}  // namespace

Finding AboutTorch(const absl::StatusOr<std::string>& version,
                   const std::string& location) {
  const bool is_path =
      absl::StartsWith(location, "/") && !absl::StrContains(location, " (");
  std::error_code error;
  const bool is_gone = is_path && !std::filesystem::exists(location, error);
  if (version.ok()) {
    return {Finding::Kind::kGood, "libtorch",
            is_gone ? *version : absl::StrCat(*version, " in ", location), ""};
  }
  return {Finding::Kind::kFault, "libtorch",
          is_gone ? absl::StrCat("was built with the one in ", location,
                                 ", which is gone")
                  : std::string(version.status().message()),
          kRebuild};
}

std::string RenderFindings(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-5s  %-8s  %s\n", Mark(finding.kind),
                          finding.subject, finding.what);
    if (finding.kind == Finding::Kind::kFault) {
      absl::StrAppendFormat(&text, "%17sremedy: %s\n", "", finding.remedy);
    }
  }
  const auto faults = std::count_if(
      findings.begin(), findings.end(),
      [](const Finding& f) { return f.kind == Finding::Kind::kFault; });
  if (faults == 0) return text + "Nothing that psring needs is missing.\n";
  absl::StrAppendFormat(&text, "%d fault%s.\n", faults, faults == 1 ? "" : "s");
  return text;
}

bool HasFault(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.kind == Finding::Kind::kFault;
  });
}

}  // namespace psring
