// Text that another process has sent, or that it shall read.
#ifndef PSRING_COMMON_PRINTABLE_H_
#define PSRING_COMMON_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace psring {

// Of `text` at most `max_bytes`, and where there was more it says so. Control
// characters but newlines and tabs, and bytes that are not UTF-8, become
// "\x1b": nobody writes to a terminal, or a file of logs, what it is not shown,
// and a message of protobuf's, which is not parsed otherwise, may hold it.
std::string Printable(absl::string_view text, size_t max_bytes = 64 << 10);

// Of `text` at most `max_bytes`, not ending within a character of UTF-8.
absl::string_view WholeCharacters(absl::string_view text, size_t max_bytes);

}  // namespace psring

#endif  // PSRING_COMMON_PRINTABLE_H_
