// Every topology at every scale, and which is the best: pure arithmetic.
#ifndef PSRING_LAB_PREDICT_PREDICT_STUDY_H_
#define PSRING_LAB_PREDICT_PREDICT_STUDY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/cancellation.h"
#include "lab/predict/predict_step.h"

namespace psring {

struct ScalePredictions {
  int hosts = 0;  // with a worker
  std::vector<Prediction> all;
  size_t best = 0;  // in `all`
};

// Where all numbers come from, for people: "compute", "measured here: ...".
struct Origin {
  std::string what;
  std::string value;
};

struct PredictStudy {
  std::string command;
  std::string created;
  std::string commit;
  std::string model;
  Hardware hardware;
  Workload workload;
  std::vector<Origin> origins;
  std::vector<ScalePredictions> scales;
  bool auto_servers = true;
};

// `servers` is empty: 1, 2, 4, ... up to as many as hosts. Uses all of this
// host's cores. Ends within a step that it simulates once it is cancelled.
absl::StatusOr<ScalePredictions> PredictScale(const Hardware& hardware,
                                              const Workload& workload,
                                              int hosts,
                                              const std::vector<int>& servers,
                                              const Effort& effort,
                                              const Cancellation& cancellation);

// The fewest hosts among those within 2% of the fastest; of as many, the
// fastest.
size_t BestOf(const std::vector<Prediction>& all);

// In `scale.all`: the best of each kind (the ring, servers of their own, a
// server on every host, spare hosts with servers, too), which is the best of
// all for its kind.
std::vector<size_t> BestOfEachKind(const ScalePredictions& scale);

// The first row is a header. Of automatic numbers of servers: the best of each
// kind, among them the best of all.
std::vector<std::vector<std::string>> PredictCells(const PredictStudy& study);

// A sentence for each scale: what is best there, and by how much.
std::vector<std::string> PredictVerdicts(const PredictStudy& study);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_STUDY_H_
