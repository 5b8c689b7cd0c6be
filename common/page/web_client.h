// Gets one file by HTTP: a job's page of another process.
#ifndef PSRING_COMMON_PAGE_WEB_CLIENT_H_
#define PSRING_COMMON_PAGE_WEB_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/net/address.h"

namespace psring {

// The body of "GET target", of at most 64 MiB. Blocks for some seconds at most.
// Errors: nobody listens, no answer, another status than 200.
absl::StatusOr<std::string> WebGet(const HostPort& server,
                                   const std::string& target);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_WEB_CLIENT_H_
