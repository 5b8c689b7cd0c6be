#include "lab/page/text_table.h"

#include <algorithm>
#include <numeric>

namespace psring {
namespace {

constexpr size_t kGap = 2;

std::vector<size_t> Widths(const std::vector<std::vector<std::string>>& cells) {
  std::vector<size_t> widths(cells[0].size());
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  return widths;
}

}  // namespace

std::string TextTable(const std::vector<std::vector<std::string>>& cells) {
  const std::vector<size_t> widths = Widths(cells);
  const size_t total =
      std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  std::string text;
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) text.append(kGap, ' ');
      text += i == 0 ? row[i] + padding : padding + row[i];
    }
    text += '\n';
    if (&row == &cells[0]) text += std::string(total, '-') + '\n';
  }
  return text;
}

}  // namespace psring
