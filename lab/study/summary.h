// A comparison in cells, for the terminal and for the report.
#ifndef PSRING_LAB_STUDY_SUMMARY_H_
#define PSRING_LAB_STUDY_SUMMARY_H_

#include <string>
#include <vector>

#include "lab/study/comparison.h"

namespace psring {

// Rows of cells; the first row and the first column are headers.
using Cells = std::vector<std::vector<std::string>>;

// Every measure of every variant, a column each; many variants have a row each.
// Several seeds show as the mean and, in a second line, the range.
Cells SummaryCells(const Comparison& comparison);

// The same in less room: means only, and of many variants the main measures.
Cells ScreenCells(const Comparison& comparison);

// What every run came to, a row each.
Cells RunCells(const Comparison& comparison);

// Every evaluation of every run, a row each.
Cells EpochCells(const Comparison& comparison);

// Bytes that a process sent in a step beside what the formula says, a row for
// each variant and role.
Cells TrafficCells(const Comparison& comparison);

// Where a worker's step went, a row each; only the header where no run says.
Cells StepTimeCells(const Comparison& comparison);

// The predictor's step beside the measured one, a row for each variant that it
// knows; only the header where it knows none.
Cells PredictionCells(const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_SUMMARY_H_
