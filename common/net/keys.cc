#include "common/net/keys.h"

#include <sodium.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace psring {
namespace {

constexpr char kPrefix[] = "psring-key-1:";
// Labels of what is derived from a secret. They are part of the protocol.
constexpr char kContext[crypto_kdf_CONTEXTBYTES + 1] = "psringcp";
constexpr uint64_t kCoordinator = 1;
constexpr uint64_t kMember = 2;

static_assert(crypto_kdf_KEYBYTES == kKeyBytes);
static_assert(crypto_box_SEEDBYTES == kKeyBytes);
static_assert(crypto_box_PUBLICKEYBYTES == kKeyBytes);
static_assert(crypto_box_SECRETKEYBYTES == kKeyBytes);

// Any thread, as often as it likes. It fails only where the system has no
// random numbers.
void UseSodium() {
  if (sodium_init() < 0) std::abort();
}

KeyPair Derive(const Secret& secret, uint64_t label) {
  UseSodium();
  KeyBytes seed;
  crypto_kdf_derive_from_key(seed.data(), kKeyBytes, label, kContext,
                             secret.bytes().data());
  KeyPair pair;
  crypto_box_seed_keypair(pair.public_key.data(), pair.secret_key.data(),
                          seed.data());
  return pair;
}

}  // namespace

KeyBytes::~KeyBytes() { sodium_memzero(bytes_.data(), bytes_.size()); }

Secret Secret::Random() {
  UseSodium();
  Secret secret;
  crypto_kdf_keygen(secret.bytes_.data());
  return secret;
}

absl::StatusOr<Secret> Secret::FromText(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const bool known = absl::ConsumePrefix(&text, kPrefix);
  Secret secret;
  size_t length = 0;
  const bool hex =
      known &&
      sodium_hex2bin(secret.bytes_.data(), kKeyBytes, text.data(), text.size(),
                     /*ignore=*/nullptr, &length,
                     /*hex_end=*/nullptr) == 0 &&
      length == kKeyBytes;
  if (hex) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat("not a key of psring: \"", kPrefix, "\" and ", 2 * kKeyBytes,
                   " hexadecimal digits. psring keygen "
                   "makes one"));
}

std::string Secret::ToText() const {
  return absl::StrCat(kPrefix, absl::BytesToHexString(bytes_.view()));
}

KeyPair CoordinatorPair(const Secret& secret) {
  return Derive(secret, kCoordinator);
}

KeyPair MemberPair(const Secret& secret) { return Derive(secret, kMember); }

KeyPair RandomPair() {
  UseSodium();
  KeyPair pair;
  crypto_box_keypair(pair.public_key.data(), pair.secret_key.data());
  return pair;
}

std::string RandomToken() {
  UseSodium();
  std::string bytes(kKeyBytes / 2, 0);
  randombytes_buf(bytes.data(), bytes.size());
  return absl::BytesToHexString(bytes);
}

bool SameText(absl::string_view a, absl::string_view b) {
  UseSodium();
  return a.size() == b.size() &&
         sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace psring
