// The live page's HTML.
#ifndef PSRING_COMMON_PAGE_PAGE_HTML_H_
#define PSRING_COMMON_PAGE_PAGE_HTML_H_

#include <string>

namespace psring {

// One file that loads nothing else but /events.
std::string PageHtml();

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_PAGE_HTML_H_
