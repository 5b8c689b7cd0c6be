// Where the report goes.
#ifndef PSRING_LAB_PAGE_REPORT_FILES_H_
#define PSRING_LAB_PAGE_REPORT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace psring {

inline constexpr char kReportHtml[] = "report.html";
inline constexpr char kReportJson[] = "report.json";

// What an error asks for in place of a path that cannot be written.
inline constexpr char kAnotherOut[] = "another folder with --out";

// Makes `directory` where it is missing and tries whether the report's files,
// of these names, can be written there. PERMISSION_DENIED says why not,
// INVALID_ARGUMENT that `directory` names a report rather than its folder.
absl::Status CheckReportPath(
    const std::string& directory,
    const std::vector<std::string>& names = {kReportHtml, kReportJson},
    absl::string_view another = kAnotherOut);

// Replaces DIRECTORY/NAME as a whole; returns when the disk has it.
// RESOURCE_EXHAUSTED: the disk is full.
absl::Status WriteReportFile(const std::string& directory,
                             const std::string& name, absl::string_view text,
                             absl::string_view another = kAnotherOut);

// The file's absolute path, for people.
std::string ReportPath(const std::string& directory, const std::string& name);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_REPORT_FILES_H_
