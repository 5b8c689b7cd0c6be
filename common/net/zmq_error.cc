#include "common/net/zmq_error.h"

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"

namespace psring {

absl::Status ErrorOf(const zmq::error_t& error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", error.what());
  switch (error.num()) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(
          absl::StrCat(message,
                       ". Another process listens there: stop it, or choose "
                       "another port (--coordinator, PSRING_COORDINATOR)"));
    case EADDRNOTAVAIL:
    case ENODEV:
      return absl::InvalidArgumentError(
          absl::StrCat(message, ". The address must be one of this host's"));
    case EHOSTUNREACH:
      return absl::NotFoundError(message);
    case EINVAL:
      return absl::InvalidArgumentError(message);
    case EMFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, ". Raise the limit of open files (ulimit -n)"));
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace psring
