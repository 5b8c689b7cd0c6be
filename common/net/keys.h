// What processes of a job know each other by. The job's secret is what they
// share; pairs of public and secret keys are made of it, or at random, for
// CURVE (socket.h). The only door to libsodium.
#ifndef PSRING_COMMON_NET_KEYS_H_
#define PSRING_COMMON_NET_KEYS_H_

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

inline constexpr size_t kKeyBytes = 32;

// 32 bytes that are overwritten when they end.
class KeyBytes {
 public:
  KeyBytes() = default;
  explicit KeyBytes(const std::array<unsigned char, kKeyBytes>& bytes)
      : bytes_(bytes) {}
  KeyBytes(const KeyBytes& other) = default;
  KeyBytes& operator=(const KeyBytes& other) = default;
  ~KeyBytes();

  unsigned char* data() { return bytes_.data(); }
  const unsigned char* data() const { return bytes_.data(); }
  absl::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::array<unsigned char, kKeyBytes> bytes_ = {};
};

// A job's secret.
class Secret {
 public:
  static Secret Random();

  // As files hold it, and `psring keygen --print` shows it: "psring-key-1:" and
  // 64 hexadecimal digits. INVALID_ARGUMENT says what the text is not, and
  // repeats none of it.
  static absl::StatusOr<Secret> FromText(absl::string_view text);
  std::string ToText() const;

  const KeyBytes& bytes() const { return bytes_; }

 private:
  KeyBytes bytes_;
};

struct KeyPair {
  KeyBytes public_key;
  KeyBytes secret_key;
};

// Pairs that whoever has the secret can make: the coordinator's, and the one
// that all members show it.
KeyPair CoordinatorPair(const Secret& secret);
KeyPair MemberPair(const Secret& secret);

// A new pair, of which nobody else has the secret key.
KeyPair RandomPair();

// kKeyBytes hexadecimal digits that nobody guesses.
std::string RandomToken();

// Whether they are equal, in a time that does not tell how far they are.
bool SameText(absl::string_view a, absl::string_view b);

}  // namespace psring

#endif  // PSRING_COMMON_NET_KEYS_H_
