// Pieces of HTML. Every text that comes in is escaped, except HtmlWarning's.
#ifndef PSRING_LAB_PAGE_HTML_H_
#define PSRING_LAB_PAGE_HTML_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace psring {

std::string EscapeHtml(absl::string_view text);

// The first row and the first column are headers.
std::string HtmlTable(const std::vector<std::vector<std::string>>& cells);

// Empty without items.
std::string HtmlList(const std::vector<std::string>& items);

// A box for what a reader must know first. `html` is HTML already.
std::string HtmlWarning(absl::string_view html);

// Terms and what they mean.
using Terms = std::vector<std::pair<std::string, std::string>>;
std::string HtmlTerms(const Terms& terms);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_HTML_H_
