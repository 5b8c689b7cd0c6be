// What readers of a job's page must show.
#ifndef PSRING_COMMON_PAGE_PAGE_TOKEN_H_
#define PSRING_COMMON_PAGE_PAGE_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// The token that a request shows: of "Authorization: Bearer TOKEN", else of a
// query with "token=TOKEN"; empty: none.
std::string ShownToken(absl::string_view authorization,
                       absl::string_view query);

// The only word of the file, which others than its owner cannot read; made,
// with a new token, where there is no such file. Without a file a new token.
// INVALID_ARGUMENT: fewer than 16 or more than 128 characters, or other ones
// than letters, digits, "-" and "_".
absl::StatusOr<std::string> PageToken(const std::string& file);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_PAGE_TOKEN_H_
