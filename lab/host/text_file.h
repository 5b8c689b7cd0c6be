// Small files for the processes that a laboratory starts, and from them.
#ifndef PSRING_LAB_HOST_TEXT_FILE_H_
#define PSRING_LAB_HOST_TEXT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace psring {

// In place of what was there. Errors name the path and the reason.
absl::Status WriteTextFile(const std::string& path, absl::string_view text);

}  // namespace psring

#endif  // PSRING_LAB_HOST_TEXT_FILE_H_
