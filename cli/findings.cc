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

Finding AboutTorch(const absl::StatusOr<Libtorch>& torch,
                   const std::string& built_with,
                   const std::string& bundle_version) {
  constexpr char kSubject[] = "libtorch";
  if (torch.ok()) {
    std::string what = absl::StrCat(
        torch->version,
        torch->cuda == "none" ? ", without CUDA" : ", CUDA " + torch->cuda);
    if (!torch->folder.empty()) absl::StrAppend(&what, ", in ", torch->folder);
    if (!bundle_version.empty() && torch->version != bundle_version) {
      absl::StrAppend(&what, "; the bundle was built with ", bundle_version,
                      ", and may fail with another");
    }
    return {Finding::Kind::kGood, kSubject, what, ""};
  }
  std::string why(torch.status().message());
  if (!bundle_version.empty()) {
    return {Finding::Kind::kFault, kSubject, why,
            absl::StrCat("pip install torch==", bundle_version,
                         " for python3, or set PSRING_TORCH to the folder of a "
                         "libtorch ",
                         bundle_version)};
  }
  const bool is_path =
      absl::StartsWith(built_with, "/") && !absl::StrContains(built_with, " (");
  std::error_code error;
  if (is_path && !std::filesystem::exists(built_with, error)) {
    why = absl::StrCat("was built with the one in ", built_with,
                       ", which is gone");
  }
  return {Finding::Kind::kFault, kSubject, why, kRebuild};
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
