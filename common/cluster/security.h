// Whether a job has a key, and where this process finds it.
#ifndef PSRING_COMMON_CLUSTER_SECURITY_H_
#define PSRING_COMMON_CLUSTER_SECURITY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster/environment.h"
#include "common/net/keys.h"

namespace psring {

// What the user says; each wins over the environment.
struct SecurityWish {
  std::string key_file = {};        // --key-file; empty: not given
  bool insecure = false;            // --insecure
  bool require_encryption = false;  // --require-encryption
};

struct Security {
  std::optional<Secret> secret = {};  // nothing: neither encryption nor proof
  std::string source = {};            // of the secret, for people
  std::string file = {};              // where it lies; empty: in no file
  bool insecure = false;              // the user wants none
  // Nothing may travel in the clear, not even where other libraries carry it.
  bool require_encryption = false;
};

// The key, by precedence: the flag's file, PSRING_KEY_FILE's, what a launcher
// has handed down (PSRING_KEY_FD), DefaultKeyPath's where there is one; none
// with --insecure or PSRING_INSECURE=1. Reads files.
absl::StatusOr<Security> FindSecurity(const SecurityWish& wish,
                                      const Variables& variables);

// The same for a command that starts all processes of a job: where the user
// names no file, a new key.
absl::StatusOr<Security> NewSecurity(const SecurityWish& wish,
                                     const Variables& variables);

// "$XDG_CONFIG_HOME/psring/key", else "~/.config/psring/key"; empty where
// neither is known.
std::string DefaultKeyPath(const Variables& variables);

// Whether a process may listen on `address` (numeric). FAILED_PRECONDITION
// names the remedies: other hosts reach the address, and there is no key.
absl::Status CheckListening(const Security& security,
                            const std::string& address);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_SECURITY_H_
