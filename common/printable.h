// Text that another process has sent, for people to read.
#ifndef PSRING_COMMON_PRINTABLE_H_
#define PSRING_COMMON_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace psring {

// Of `text` at most `max_bytes`, and where there was more it says so. Control
// characters but newlines and tabs become "\x1b": nobody writes to a terminal,
// or a file of logs, what it is not shown.
std::string Printable(absl::string_view text, size_t max_bytes = 64 << 10);

}  // namespace psring

#endif  // PSRING_COMMON_PRINTABLE_H_
