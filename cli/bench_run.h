// One run of `psring bench`, without its report.
#ifndef PSRING_CLI_BENCH_RUN_H_
#define PSRING_CLI_BENCH_RUN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bench_plan.h"
#include "common/net/cancellation.h"
#include "lab/bench/contender.h"
#include "lab/bench/peers.h"
#include "lab/bench/results.h"
#include "lab/host/hosts.h"

namespace psring {

// One thread's own. All references outlive it.
class BenchRun {
 public:
  BenchRun(const BenchFlags& flags, BenchPlan plan,
           const Cancellation& cancellation);

  // Measures all that is wanted, with a line on stderr now and then. `results`
  // is filled in; what is known before may be there already. An error names who
  // failed and at what.
  absl::Status Measure(BenchResults* results);

 private:
  bool Wants(const char* operation) const;
  bool WantsPeer(const char* name) const;
  absl::Status MakeHosts(BenchResults* results);
  void FindPeers(const std::string& directory, BenchResults* results);
  void AddPeer(const char* name,
               absl::StatusOr<std::unique_ptr<Contender>> peer,
               const std::string& detail, BenchResults* results);
  absl::Status MeasureLinks(BenchResults* results);
  absl::Status Sweep(const std::string& operation, BenchResults* results);
  absl::Status Train(BenchResults* results);

  const BenchFlags& flags_;
  const BenchPlan plan_;
  Stage stage_;
  std::unique_ptr<Hosts> hosts_;
  std::optional<GlooPython> python_;
  std::vector<std::unique_ptr<Contender>> peers_;
};

}  // namespace psring

#endif  // PSRING_CLI_BENCH_RUN_H_
