// What an address says behind its "?".
#ifndef PSRING_COMMON_PAGE_WEB_QUERY_H_
#define PSRING_COMMON_PAGE_WEB_QUERY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace psring {

// Of "name=value&...", decoded; empty: it is not there, or longer than any
// value that is wanted.
std::string QueryValue(absl::string_view query, const char* name);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_WEB_QUERY_H_
