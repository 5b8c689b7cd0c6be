#include "lab/page/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace psring {

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string HtmlTable(const std::vector<std::vector<std::string>>& cells) {
  std::string html = "<table>\n";
  for (size_t row = 0; row < cells.size(); ++row) {
    absl::StrAppend(&html, "<tr>");
    for (size_t column = 0; column < cells[row].size(); ++column) {
      const char* tag = row == 0 || column == 0 ? "th" : "td";
      const char* scope = row == 0      ? " scope=\"col\""
                          : column == 0 ? " scope=\"row\""
                                        : "";
      absl::StrAppend(&html, "<", tag, scope, ">",
                      EscapeHtml(cells[row][column]), "</", tag, ">");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return absl::StrCat(html, "</table>");
}

std::string HtmlList(const std::vector<std::string>& items) {
  if (items.empty()) return "";
  std::string html = "<ul>\n";
  for (const std::string& item : items) {
    absl::StrAppend(&html, "<li>", EscapeHtml(item), "</li>\n");
  }
  return absl::StrCat(html, "</ul>");
}

std::string HtmlWarning(absl::string_view html) {
  return absl::StrCat("<div class=\"fault\" role=\"note\">", html, "</div>");
}

std::string HtmlTerms(const Terms& terms) {
  std::string html = "<dl>\n";
  for (const auto& [term, meaning] : terms) {
    absl::StrAppend(&html, "<dt>", EscapeHtml(term), "</dt><dd>",
                    EscapeHtml(meaning), "</dd>\n");
  }
  return absl::StrCat(html, "</dl>");
}

}  // namespace psring
