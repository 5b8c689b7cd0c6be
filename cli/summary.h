// A comparison in words and in cells, for the terminal and for the report.
#ifndef PSRING_CLI_SUMMARY_H_
#define PSRING_CLI_SUMMARY_H_

#include <string>
#include <vector>

#include "cli/comparison.h"

namespace psring {

// Rows of cells: the first row names the modes, the first column the measures.
using Cells = std::vector<std::vector<std::string>>;
Cells SummaryCells(const Comparison& comparison);

// What follows from the numbers, a sentence or two each.
std::vector<std::string> Verdicts(const Comparison& comparison);

// "12,345", "1.5 KiB", "97.10%", "3.1 s".
std::string FormatCount(double number);
std::string FormatBytes(double bytes);
std::string FormatPercent(double fraction);
std::string FormatSeconds(double seconds);

}  // namespace psring

#endif  // PSRING_CLI_SUMMARY_H_
