// Cells as a table of text.
#ifndef PSRING_LAB_PAGE_TEXT_TABLE_H_
#define PSRING_LAB_PAGE_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace psring {

// The first row is a header with a rule below it, the first column is flush
// left, the others flush right. Every row has as many cells as the first.
std::string TextTable(const std::vector<std::vector<std::string>>& cells);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_TEXT_TABLE_H_
