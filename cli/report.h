// A comparison as a report, for people and for programs.
#ifndef PSRING_CLI_REPORT_H_
#define PSRING_CLI_REPORT_H_

#include <string>

#include "cli/comparison.h"
#include "cli/machine.h"

namespace psring {

// What was compared, for the reader of a report.
struct ReportSetup {
  std::string command;  // that makes the same report again
  std::string model = "lenet";
  std::string data = "digits";
  int workers = 2;
  int servers = 1;
  int epochs = 10;
  int batch_size = 64;  // of each worker
  std::string optimizer = "momentum";
  double lr = 0.02;
  double momentum = 0.5;
  int64_t seed = 0;
  int threads_per_worker = 1;
  std::string created;  // date and time
  std::string commit;
  std::string libtorch;
  std::string zeromq;
  Machine machine;
};

// Everything that is known, as JSON.
std::string RenderJson(const ReportSetup& setup, const Comparison& comparison);

// One file that needs no other and no network. All that comes from the user or
// from files is escaped.
std::string RenderHtml(const ReportSetup& setup, const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_CLI_REPORT_H_
