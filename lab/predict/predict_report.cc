#include "lab/predict/predict_report.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lab/page/report_files.h"
#include "lab/page/text_table.h"
#include "lab/predict/predict_page.h"

namespace psring {
namespace {

constexpr char kAnotherFile[] = "another file with --json";

std::string FolderOf(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path().string() : ".";
}

}  // namespace

std::string PredictText(const PredictStudy& study) {
  std::string text;
  for (const Origin& origin : study.origins) {
    absl::StrAppend(&text, origin.what, ": ", origin.value, "\n");
  }
  absl::StrAppend(&text, "\n", TextTable(PredictCells(study)), "\n");
  for (const std::string& verdict : PredictVerdicts(study)) {
    absl::StrAppend(&text, "* ", verdict, "\n");
  }
  return text;
}

absl::Status WritePredictReport(const PredictStudy& study,
                                const std::string& directory) {
  return WriteReportFile(directory, kPredictHtml, RenderPredictHtml(study));
}

absl::Status CheckPredictJson(const std::string& path) {
  const std::filesystem::path file(path);
  return CheckReportPath(FolderOf(file), {file.filename().string()},
                         kAnotherFile);
}

absl::Status WritePredictJson(const PredictStudy& study,
                              const std::string& path) {
  const std::filesystem::path file(path);
  return WriteReportFile(FolderOf(file), file.filename().string(),
                         RenderPredictJson(study), kAnotherFile);
}

}  // namespace psring
