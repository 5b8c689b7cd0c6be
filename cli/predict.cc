#include "cli/predict.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/predict_check.h"
#include "cli/predict_plan.h"
#include "cli/version.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/host/units.h"
#include "lab/page/format.h"
#include "lab/page/report_files.h"
#include "lab/page/report_parts.h"
#include "lab/page/text_table.h"
#include "lab/predict/compute.h"
#include "lab/predict/predict_page.h"
#include "lab/predict/predict_source.h"
#include "lab/predict/predict_study.h"
#include "lab/predict/update_rate.h"
#include "lab/study/summary.h"

namespace psring {
namespace {

constexpr char kPredictHtml[] = "predict.html";

constexpr char kDescription[] =
    "Predicts how long a synchronous training step takes in every topology on "
    "hosts that you do not have: it simulates links, servers, threads and slow "
    "workers event by event. Prints a table and writes predict.html.";

class Predicting {
 public:
  Predicting(const PredictFlags& flags, const PredictPlan& plan,
             const Cancellation& cancellation)
      : flags_(flags), plan_(plan), cancellation_(cancellation) {}

  absl::Status Run(PredictStudy* study) {
    study->hardware = plan_.hardware;
    study->auto_servers = plan_.servers.empty();
    PredictSource source;
    if (!flags_.from.empty()) {
      auto read = ReadSource(flags_.from);
      if (!read.ok()) return read.status();
      source = *std::move(read);
    }
    if (absl::Status s = FillUpdate(study); !s.ok()) return s;
    if (absl::Status s = FillWorkload(std::move(source), study); !s.ok())
      return s;
    FillLink(study);
    for (const int hosts : plan_.hosts) {
      if (absl::Status s = cancellation_.status(); !s.ok()) return s;
      study->scales.push_back(PredictScale(study->hardware, study->workload,
                                           hosts, plan_.servers, plan_.effort));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status FillUpdate(PredictStudy* study) {
    std::string origin = "--update";
    if (plan_.update_bytes_per_s) {
      study->hardware.update_bytes_per_s = *plan_.update_bytes_per_s;
    } else {
      const auto rate = MeasureUpdateRate();
      if (!rate.ok()) return rate.status();
      study->hardware.update_bytes_per_s = *rate;
      origin = "measured here";
    }
    study->origins.push_back(
        {"Update",
         absl::StrCat(FormatBandwidth(study->hardware.update_bytes_per_s),
                      " of gradients a thread (", origin, ")")});
    return absl::OkStatus();
  }

  // A flag comes before the file, the file before a measurement.
  absl::Status FillWorkload(PredictSource source, PredictStudy* study) {
    std::string origin = "flags";
    const bool whole_by_flags =
        !plan_.compute_s.empty() &&
        (flags_.parameters > 0 || source.parameters > 0);
    if (!whole_by_flags && source.compute_s.empty()) {
      std::cerr << "measuring " << flags_.model << ": one worker for "
                << flags_.measure << std::endl;
      auto measured = MeasureWorker({.worker_binary = flags_.binaries.worker,
                                     .model = flags_.model,
                                     .batch_size = flags_.batch_size,
                                     .threads = flags_.threads,
                                     .budget = absl::Seconds(plan_.measure_s)},
                                    cancellation_);
      if (!measured.ok()) return measured.status();
      measured->link_bits_per_s = source.link_bits_per_s;
      source = *std::move(measured);
      origin = "measured here, one worker by itself";
      SubtractUpdate(study->hardware, &source);
    } else if (!source.compute_s.empty() && plan_.compute_s.empty()) {
      origin = absl::StrCat(flags_.from, ", the fastest mode",
                            source.with_exchange ? ", its exchange in it" : "");
    }
    study->model = source.model;
    if (flags_.parameters > 0) source.parameters = flags_.parameters;
    Workload& workload = study->workload;
    workload.buckets =
        CutBuckets(source.parameters, flags_.bucket_mb * (1 << 20));
    workload.compute_s =
        plan_.compute_s.empty() ? source.compute_s : plan_.compute_s;
    workload.forward_share = flags_.forward_share;
    DescribeWorkload(workload, origin, study);
    link_bits_per_s_ = source.link_bits_per_s;
    return absl::OkStatus();
  }

  // A lone worker applies the optimizer, which the simulators count too.
  static void SubtractUpdate(const Hardware& hardware, PredictSource* source) {
    const double update = static_cast<double>(source->parameters) *
                          sizeof(float) / hardware.update_bytes_per_s;
    for (double& seconds : source->compute_s) {
      seconds = std::max(seconds - update, seconds / 2);
    }
  }

  static void DescribeWorkload(const Workload& workload,
                               const std::string& origin, PredictStudy* study) {
    const auto [least, most] = std::minmax_element(workload.compute_s.begin(),
                                                   workload.compute_s.end());
    study->origins.push_back(
        {"Model",
         absl::StrCat(study->model, study->model.empty() ? "" : ": ",
                      FormatCount(static_cast<double>(NumElements(workload))),
                      " parameters, ",
                      FormatSize(static_cast<int64_t>(NumBytes(workload))),
                      " in ", workload.buckets.size(), " buckets")});
    study->origins.push_back(
        {"Compute",
         absl::StrCat(FormatTime(MeanCompute(workload)), " a step, from ",
                      FormatTime(*least), " to ", FormatTime(*most), " (",
                      origin, "); gradients come after ",
                      absl::StrFormat("%.0f%%", workload.forward_share * 100),
                      " of it, evenly")});
  }

  void FillLink(PredictStudy* study) {
    std::string origin = plan_.link_given ? "--link" : "the default";
    if (!plan_.link_given && link_bits_per_s_) {
      study->hardware.link_bytes_per_s = *link_bits_per_s_ / 8;
      origin = flags_.from;
    }
    study->origins.push_back(
        {"Links",
         absl::StrCat(FormatLinkRate(study->hardware.link_bytes_per_s * 8),
                      " in each direction (", origin, "), latency ",
                      FormatTime(study->hardware.latency_s))});
  }

  const PredictFlags& flags_;
  const PredictPlan& plan_;
  const Cancellation& cancellation_;
  std::optional<double> link_bits_per_s_;
};

absl::Status WriteJson(const PredictStudy& study, const std::string& path) {
  const std::filesystem::path file(path);
  const std::string directory = file.parent_path().string();
  return WriteReportFile(directory.empty() ? "." : directory,
                         file.filename().string(),
                         DumpJson(ToJson(study), 1) + "\n");
}

absl::Status Report(const PredictStudy& study, const PredictFlags& flags) {
  for (const Origin& origin : study.origins) {
    std::cout << origin.what << ": " << origin.value << "\n";
  }
  std::cout << "\n" << TextTable(PredictCells(study)) << "\n";
  for (const std::string& verdict : PredictVerdicts(study)) {
    std::cout << "* " << verdict << "\n";
  }
  if (!flags.json.empty()) {
    if (absl::Status s = WriteJson(study, flags.json); !s.ok()) return s;
  }
  const absl::Status s =
      WriteReportFile(flags.out, kPredictHtml, RenderPredictHtml(study));
  const auto path = std::filesystem::absolute(flags.out).lexically_normal();
  std::cout << "\nreport: " << (path / kPredictHtml).string() << std::endl;
  return s;
}

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  std::cerr << "psring predict: " << status.message() << std::endl;
  return exit_code;
}

absl::Status PredictAndReport(const PredictFlags& flags,
                              const PredictPlan& plan, const Args& args,
                              const Cancellation& cancellation) {
  if (absl::Status s = CheckReportPath(flags.out, {kPredictHtml}); !s.ok()) {
    return s;
  }
  PredictStudy study;
  study.command = absl::StrCat("psring predict ", absl::StrJoin(args, " "));
  study.created =
      absl::FormatTime("%Y-%m-%d %H:%M %Z", absl::Now(), absl::LocalTimeZone());
  study.commit = BuiltCommit();
  absl::Status status = Predicting(flags, plan, cancellation).Run(&study);
  return status.ok() ? Report(study, flags) : status;
}

}  // namespace

int RunPredict(const Args& args) {
  CLI::App app(kDescription, "psring predict");
  PredictFlags flags;
  AddPredictFlags(app, flags);
  if (auto code = ParseFlags(app, args)) return *code;
  const auto plan = PlanPredict(app, flags);
  if (!plan.ok()) return UsageError(app, std::string(plan.status().message()));
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  const absl::Status status =
      flags.check ? CheckPredictions(flags, *plan, cancellation)
                  : PredictAndReport(flags, *plan, args, cancellation);
  if (signals.received() != 0) {
    return Fail(absl::CancelledError("interrupted; all processes have ended"),
                128 + signals.received());
  }
  return status.ok() ? 0 : Fail(status);
}

}  // namespace psring
