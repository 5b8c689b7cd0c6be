// Shows how far one run of a comparison is.
#ifndef PSRING_LAB_STUDY_PROGRESS_H_
#define PSRING_LAB_STUDY_PROGRESS_H_

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/trace/metrics_reader.h"
#include "lab/host/terminal.h"

namespace psring {

// "ps-bsp  [######......] epoch 2/3  loss 0.1234  8,000 images/s  ETA 0:12".
std::string ProgressLine(const std::string& name,
                         const ProcessMetrics& worker0);

// "ps-bsp  epoch 2/3: train loss 0.12, test loss 0.13, accuracy 96.10%, ...".
std::string EpochLine(const std::string& name, const ProcessMetrics& worker0,
                      const EpochSample& epoch);

// On a terminal a block that is drawn anew in place, otherwise a line per
// epoch.
class Progress {
 public:
  Progress(FILE* out, std::string name)
      : Progress(out, TerminalColumns(out), std::move(name)) {}
  // `columns` 0: `out` is no terminal.
  Progress(FILE* out, int columns, std::string name)
      : out_(out), block_(out, columns), name_(std::move(name)) {}

  bool live() const { return block_.live(); }

  // Shows what is new since the last call; in the block, `more` lines below.
  void Show(const ProcessMetrics& worker0,
            const std::vector<std::string>& more = {});

 private:
  FILE* const out_;
  LiveBlock block_;
  const std::string name_;
  size_t num_epochs_shown_ = 0;
};

}  // namespace psring

#endif  // PSRING_LAB_STUDY_PROGRESS_H_
