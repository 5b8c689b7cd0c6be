#include "lab/predict/predict_run.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/counted.h"
#include "lab/host/other_load.h"
#include "lab/host/units.h"
#include "lab/page/format.h"
#include "lab/predict/compute.h"
#include "lab/predict/update_rate.h"

namespace psring {
namespace {

// Each takes part in every simulated exchange.
constexpr int64_t kMostBuckets = 100'000;

class Predicting {
 public:
  Predicting(const PredictOptions& options, const Cancellation& cancellation)
      : options_(options), cancellation_(cancellation) {}

  absl::StatusOr<PredictStudy> Run() {
    PredictStudy study;
    study.hardware = options_.hardware;
    study.auto_servers = options_.servers.empty();
    PredictSource source;
    if (!options_.from.empty()) {
      auto read = ReadSource(options_.from);
      if (!read.ok()) return read.status();
      source = *std::move(read);
    }
    absl::Status s = CheckGiven(options_, source);
    if (s.ok()) s = FillUpdate(&study);
    if (s.ok()) s = FillWorkload(std::move(source), &study);
    if (!s.ok()) return s;
    FillLink(&study);
    // Of a large model on many hosts that takes minutes.
    std::cerr << "simulating " << absl::StrJoin(options_.hosts, ", ")
              << " hosts" << std::endl;
    for (const int hosts : options_.hosts) {
      auto scale =
          PredictScale(study.hardware, study.workload, hosts, options_.servers,
                       options_.effort, cancellation_);
      if (!scale.ok()) return scale.status();
      study.scales.push_back(*std::move(scale));
    }
    return study;
  }

 private:
  absl::Status FillUpdate(PredictStudy* study) {
    std::string origin = "--update";
    if (options_.update_bytes_per_s) {
      study->hardware.update_bytes_per_s = *options_.update_bytes_per_s;
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

  absl::Status FillWorkload(PredictSource source, PredictStudy* study) {
    std::string origin = "flags";
    if (options_.compute_s.empty() && source.compute_s.empty()) {
      std::cerr << "measuring " << options_.measurement.model
                << ": one worker for "
                << absl::FormatDuration(options_.measurement.budget)
                << std::endl;
      auto measured = MeasureWorker(options_.measurement, cancellation_);
      if (!measured.ok()) return measured.status();
      measured->link_bits_per_s = source.link_bits_per_s;
      source = *std::move(measured);
      origin = absl::StrCat("measured here, one worker by itself on ",
                            options_.measurement.data);
      SubtractUpdate(study->hardware, &source);
    } else if (options_.compute_s.empty()) {
      origin = absl::StrCat(options_.from, ", the fastest way",
                            source.run.empty() ? "" : ": ", source.run,
                            source.with_exchange ? ", its exchange in it" : "");
    }
    study->model = source.model;
    if (options_.parameters > 0) source.parameters = options_.parameters;
    Workload& workload = study->workload;
    workload.buckets = CutBuckets(source.parameters, options_.bucket_bytes);
    workload.compute_s = {options_.compute_s.empty() ? source.compute_s
                                                     : options_.compute_s};
    workload.forward_share = options_.forward_share;
    DescribeWorkload(workload, origin, study);
    if (options_.compute_s.empty()) TellOfOthers(source, study);
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

  static void TellOfOthers(const PredictSource& source, PredictStudy* study) {
    if (source.other_cores.value_or(0) <= kMuchOtherLoad) return;
    study->origins.push_back(
        {"Busy host",
         absl::StrFormat("other programs kept %.1f cores busy while these "
                         "steps were measured, and lengthened them: measure "
                         "again on a quiet host, or give --compute",
                         *source.other_cores)});
  }

  static void DescribeWorkload(const Workload& workload,
                               const std::string& origin, PredictStudy* study) {
    const std::vector<double>& times = workload.compute_s.front();
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    study->origins.push_back(
        {"Model",
         absl::StrCat(study->model, study->model.empty() ? "" : ": ",
                      FormatCount(static_cast<double>(NumElements(workload))),
                      " parameters, ",
                      FormatSize(static_cast<int64_t>(NumBytes(workload))),
                      " in ", Counted(workload.buckets.size(), "bucket"))});
    study->origins.push_back(
        {"Compute",
         absl::StrCat(FormatTime(MeanCompute(workload)), " a step, from ",
                      FormatTime(*least), " to ", FormatTime(*most), " (",
                      origin, "); gradients come after ",
                      absl::StrFormat("%.0f%%", workload.forward_share * 100),
                      " of it, evenly")});
  }

  void FillLink(PredictStudy* study) {
    std::string origin = options_.link_given ? "--link" : "the default";
    if (!options_.link_given && link_bits_per_s_) {
      study->hardware.link_bytes_per_s = *link_bits_per_s_ / 8;
      origin = options_.from;
    }
    study->origins.push_back(
        {"Links",
         absl::StrCat(FormatLinkRate(study->hardware.link_bytes_per_s * 8),
                      " in each direction (", origin, "), latency ",
                      FormatTime(study->hardware.latency_s))});
  }

  const PredictOptions& options_;
  const Cancellation& cancellation_;
  std::optional<double> link_bits_per_s_;
};

}  // namespace

absl::Status CheckGiven(const PredictOptions& options,
                        const PredictSource& source) {
  const bool compute_given = !options.compute_s.empty();
  if (compute_given && options.parameters == 0 && source.parameters == 0) {
    return absl::InvalidArgumentError(
        "--compute says how long a model computes; say its --parameters too");
  }
  if (options.parameters > 0 && !compute_given && source.compute_s.empty() &&
      !options.measurement.model_given) {
    return absl::InvalidArgumentError(
        "--parameters says how large a model is; say how long it computes, "
        "too: --compute, or a --model to measure");
  }
  if (!source.compute_s.empty() && !options.measurement.flag_given.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.measurement.flag_given,
        " has no effect with --from=", options.from,
        ", which says how long its own model computes: leave one of them out"));
  }
  const int64_t parameters =
      options.parameters > 0 ? options.parameters : source.parameters;
  if (static_cast<double>(parameters) * sizeof(float) >
      kMostBuckets * options.bucket_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the gradients of ", parameters, " parameters are more than ",
        kMostBuckets, " buckets, too many to simulate: raise --bucket-mb"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PredictStudy> RunPrediction(const PredictOptions& options,
                                           const Cancellation& cancellation) {
  return Predicting(options, cancellation).Run();
}

}  // namespace psring
