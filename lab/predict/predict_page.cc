#include "lab/predict/predict_page.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "lab/page/html.h"
#include "lab/page/report_parts.h"
#include "lab/predict/closed_forms.h"
#include "lab/predict/predict_charts.h"
#include "lab/predict/predict_template.h"

namespace psring {
namespace {

using nlohmann::json;

// What the formulas say of the exchange by itself.
double FormulaSeconds(const PredictStudy& study, const Topology& topology) {
  const double bytes = NumBytes(study.workload);
  const int n = topology.workers;
  if (topology.kind == TopologyKind::kRing) {
    return RingSeconds(study.hardware, bytes, n);
  }
  if (topology.colocated) {
    return ColocatedPsSeconds(study.hardware, bytes, n, topology.server_hosts);
  }
  return PsSeconds(study.hardware, bytes, n, topology.server_hosts);
}

json PredictionJson(const PredictStudy& study, const Prediction& p) {
  const Topology& topology = p.topology;
  return {
      {"name", Describe(topology)},
      {"mode", topology.kind == TopologyKind::kRing ? "ring" : "ps"},
      {"workers", topology.workers},
      {"servers", topology.num_servers()},
      {"server_hosts", topology.server_hosts},
      {"server_on_every_host", topology.colocated},
      {"step_s", p.step_s},
      {"p99_s", p.p99_s},
      {"compute_s", p.compute_s},
      {"exchange_s", p.exchange_s},
      {"formula_exchange_s", FormulaSeconds(study, topology)},
      {"efficiency", p.efficiency()},
      {"coarse", p.coarse},
  };
}

json ScaleJson(const PredictStudy& study, const ScalePredictions& scale) {
  json all = json::array();
  for (const Prediction& p : scale.all) {
    all.push_back(PredictionJson(study, p));
    all.back()["best_of_its_kind"] = false;
  }
  for (const size_t i : BestOfEachKind(scale)) {
    all[i]["best_of_its_kind"] = true;
  }
  return {{"hosts", scale.hosts},
          {"best", Describe(scale.all[scale.best].topology)},
          {"predictions", std::move(all)}};
}

json HardwareJson(const Hardware& hardware) {
  return {
      {"link_bits_per_s", hardware.link_bytes_per_s * 8},
      {"latency_s", hardware.latency_s},
      {"message_s", hardware.message_s},
      {"update_bytes_per_s", hardware.update_bytes_per_s},
      {"shard_threads", hardware.shards},
  };
}

Terms SetupTerms(const PredictStudy& study) {
  Terms terms;
  for (const Origin& origin : study.origins) {
    terms.emplace_back(origin.what, origin.value);
  }
  terms.emplace_back("Software", "psring " + study.commit);
  terms.emplace_back("Made", study.created);
  return terms;
}

json ToJson(const PredictStudy& study) {
  json scales = json::array();
  for (const ScalePredictions& scale : study.scales) {
    scales.push_back(ScaleJson(study, scale));
  }
  return {
      {"command", study.command},
      {"created", study.created},
      {"commit", study.commit},
      {"model", study.model},
      {"parameters", NumElements(study.workload)},
      {"buckets", study.workload.buckets},
      {"compute_s", study.workload.compute_s.front()},
      {"forward_share", study.workload.forward_share},
      {"hardware", HardwareJson(study.hardware)},
      {"verdicts", PredictVerdicts(study)},
      {"scales", std::move(scales)},
  };
}

}  // namespace

std::string RenderPredictJson(const PredictStudy& study) {
  return DumpJson(ToJson(study), 1) + "\n";
}

std::string RenderPredictHtml(const PredictStudy& study) {
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(
      kPredictTemplate,
      {
          {"{{HEAD}}", ReportHead("psring predict")},
          {"{{COMMAND}}", EscapeHtml(study.command)},
          {"{{VERDICTS}}", HtmlList(PredictVerdicts(study))},
          {"{{TABLE}}", HtmlTable(PredictCells(study))},
          {"{{SETUP}}", HtmlTerms(SetupTerms(study))},
          {"{{FOOT}}", ReportFoot(ToJson(study)["scales"], kPredictCharts)},
      });
}

}  // namespace psring
