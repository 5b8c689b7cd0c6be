// Where a process finds its job's key: common/net/key_file.h and
// common/cluster/security.h, whatever files and descriptors hold.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr size_t kMostRead = 256;  // of a file's bytes
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

// The key in `text`, lower case; nothing where it is none.
std::optional<std::string> KeyIn(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumePrefix(&text, "psring-key-1:") ||
      text.size() != 2 * kKeyBytes ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) {
    return std::nullopt;
  }
  return absl::AsciiStrToLower(absl::StrCat("psring-key-1:", text));
}

void CheckSecret(const absl::StatusOr<Secret>& secret,
                 const std::string& text) {
  if (!secret.ok()) RequireReason(secret.status());
  const auto key = KeyIn(absl::string_view(text).substr(0, kMostRead));
  Require(secret.ok() == key.has_value(),
          "texts of the right form give a key, others none");
  Require(!secret.ok() || secret->ToText() == *key, "the one they hold");
}

// Memory with a text, sealed or not.
class Memory {
 public:
  Memory(const std::string& text, int seals)
      : fd_(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    Require(fd_ >= 0 && write(fd_, text.data(), text.size()) ==
                            static_cast<ssize_t>(text.size()),
            "memory can be written");
    Require(fcntl(fd_, F_ADD_SEALS, seals) == 0, "and sealed");
  }
  ~Memory() { close(fd_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

void ReadDescriptor(Bytes& input) {
  const int without = input.Below(8);
  const std::string text = input.Rest();
  {
    const Memory sealed(text, kSeals);
    CheckSecret(ReadKeyDescriptor(sealed.fd()), text);
    CheckSecret(ReadKeyDescriptor(sealed.fd()), text);
  }
  // Whatever it holds, what others can still change is no key.
  constexpr int kEach[] = {F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK,
                           F_SEAL_SEAL};
  const Memory open(text, kSeals & ~kEach[without % 4]);
  RequireReason(ReadKeyDescriptor(open.fd()).status());
  RequireReason(ReadKeyDescriptor(-1 - without).status());
}

void ReadFile(const std::string& text) {
  const std::string path = WriteScratch("key", text);
  CheckSecret(ReadKeyFile(path), text);
}

// Three keys in three places.
struct Places {
  Secret secrets[3] = {Secret::Random(), Secret::Random(), Secret::Random()};
  std::string flag = WriteScratch("flag-key", secrets[0].ToText());
  std::string variable = WriteScratch("variable-key", secrets[1].ToText());
  Memory descriptor{secrets[2].ToText(), kSeals};
};

const char* Switch(Bytes& input) {
  static constexpr const char* kTexts[] = {"", "0", "1", "yes"};
  return kTexts[input.Below(4)];
}

// Which key is chosen, of what the user and the environment say.
void Choose(Bytes& input) {
  static const Places& places = *new Places();
  SecurityWish wish;
  Variables variables;
  if (input.Flag()) wish.key_file = places.flag;
  wish.insecure = input.Flag();
  wish.require_encryption = input.Flag();
  if (input.Flag()) variables["PSRING_KEY_FILE"] = places.variable;
  const bool descriptor = input.Flag();
  if (descriptor) {
    variables["PSRING_KEY_FD"] = absl::StrCat(places.descriptor.fd());
  }
  variables["PSRING_INSECURE"] = Switch(input);
  variables["PSRING_REQUIRE_ENCRYPTION"] = Switch(input);
  const std::string text = input.Rest();
  if (!text.empty() && !descriptor) variables["PSRING_KEY_FD"] = text;
  const auto security = FindSecurity(wish, variables);
  if (!security.ok()) return RequireReason(security.status());
  const bool wants =
      wish.require_encryption ||
      (variables["PSRING_REQUIRE_ENCRYPTION"] == "1" && !security->insecure);
  Require(security->secret.has_value() || !wants, "who wants a key has one");
  Require(!security->insecure || !security->secret.has_value(),
          "who wants none has none");
  Require(!wish.insecure || security->insecure, "the user's word counts");
  Require(security->secret.has_value() != security->source.empty(),
          "a key comes from somewhere");
  if (!security->secret.has_value()) {
    Require(wish.key_file.empty() || wish.insecure, "the user's file counts");
    return;
  }
  const int place = !wish.key_file.empty()                    ? 0
                    : variables.count("PSRING_KEY_FILE") != 0 ? 1
                                                              : 2;
  Require(security->secret->ToText() == places.secrets[place].ToText(),
          "the first place that is named counts");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string key = Secret::Random().ToText();
  return {
      Input().Byte(0).Byte(0).Rest(key).bytes(),
      Input().Byte(0).Byte(1).Rest(key).Rest("\n").bytes(),
      Input().Byte(1).Rest(key).Rest("\n").bytes(),
      Input().Byte(1).Rest(std::string(200, ' ')).Rest(key).bytes(),
      Input().Byte(2).bytes(),
      Input().Byte(2).Byte(1).Byte(0).Byte(1).Byte(1).Byte(1).bytes(),
      Input().Byte(2).Byte(0).Byte(0).Byte(1).Byte(1).Byte(0).bytes(),
      Input().Byte(2).Byte(0).Byte(0).Byte(1).Byte(0).Byte(1).bytes(),
      Input().Byte(2).Number(0, 7).Rest("12345").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0:
      fuzz::ReadDescriptor(input);
      break;
    case 1:
      fuzz::ReadFile(input.Rest());
      break;
    default:
      fuzz::Choose(input);
  }
  return 0;
}
