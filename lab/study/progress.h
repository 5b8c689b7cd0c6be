// Shows how far one run of a comparison is.
#ifndef PSRING_LAB_STUDY_PROGRESS_H_
#define PSRING_LAB_STUDY_PROGRESS_H_

#include <cstdio>
#include <string>

#include "common/trace/metrics_reader.h"

namespace psring {

// "ps-bsp  [######......] epoch 2/3  loss 0.1234  8,000 images/s  ETA 0:12".
std::string ProgressBar(const std::string& name, const ProcessMetrics& worker0);

// "ps-bsp  epoch 2/3: train loss 0.12, test loss 0.13, accuracy 96.10%, ...".
std::string EpochLine(const std::string& name, const ProcessMetrics& worker0,
                      const EpochSample& epoch);

// On a terminal a bar that is redrawn in place, otherwise a line per epoch.
class Progress {
 public:
  // `columns` of the terminal, or 0 where `out` is not a terminal.
  Progress(FILE* out, int columns, std::string name)
      : out_(out), columns_(columns), name_(std::move(name)) {}

  // Shows what is new since the last call.
  void Show(const ProcessMetrics& worker0);

  // Leaves the bar, if any, behind as it is.
  void Finish();

 private:
  FILE* const out_;
  const int columns_;
  const std::string name_;
  size_t num_epochs_shown_ = 0;
  std::string bar_;
};

// The width of the terminal that `out` is; 0 where it is not a terminal.
int TerminalColumns(FILE* out);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_PROGRESS_H_
