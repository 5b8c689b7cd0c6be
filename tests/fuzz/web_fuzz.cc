// Who may look at a job's page: common/page/page_token.h, as requests show it
// and as a file holds it.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/keys.h"
#include "common/page/page_token.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789ABCDEF";
constexpr size_t kLeast = 16, kMost = 128;  // of a token's letters

bool Opens(absl::string_view authorization, absl::string_view query) {
  return SameText(ShownToken(authorization, query), kToken);
}

// "%XX" and "+" are what they stand for; the rest is as it is.
std::string Decoded(absl::string_view query) {
  std::string text;
  for (size_t i = 0; i < query.size(); ++i) {
    const absl::string_view hex = query.substr(i + 1).substr(0, 2);
    const bool encoded = query[i] == '%' && hex.size() == 2 &&
                         absl::ascii_isxdigit(hex[0]) &&
                         absl::ascii_isxdigit(hex[1]);
    text += encoded ? absl::HexStringToBytes(hex) : std::string(1, query[i]);
    if (encoded) i += 2;
  }
  return text;
}

std::string Encoded(absl::string_view text) {
  std::string query;
  for (const char c : text) {
    absl::StrAppend(&query, "%",
                    absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return query;
}

// Any request: it does not open the page without the token.
void Ask(const std::string& authorization, const std::string& query) {
  const std::string shown = ShownToken(authorization, query);
  Require(shown.size() <= authorization.size() + query.size(),
          "a request shows no more than it says");
  Require(!SameText(shown, kToken) ||
              absl::StrContains(authorization, kToken) ||
              absl::StrContains(Decoded(query), kToken),
          "who opens the page has its token");
}

// The token with a change or two, or without.
std::string NearlyToken(Bytes& input) {
  std::string token = kToken;
  for (int changes = input.Below(3); changes > 0; --changes) {
    const size_t at = input.Byte() % (token.size() + 1);
    const int kind = input.Below(5);
    if (kind == 0) token.insert(at, 1, static_cast<char>(input.Byte()));
    if (kind == 1) token.resize(at);
    if (kind == 2 && at < token.size()) token.erase(at, 1);
    if (kind == 3 && at < token.size()) token[at] ^= 0x20;
    if (kind == 4) token += input.Text().substr(0, 100);
  }
  return token;
}

void AskNearly(Bytes& input) {
  const std::string token = NearlyToken(input);
  const bool right = token == kToken;
  const std::string encoded = Encoded(token);
  Require(Opens(absl::StrCat("Bearer ", token), "") == right,
          "the header opens with the exact token");
  Require(!Opens(token, "") && !Opens(absl::StrCat("Basic ", token), ""),
          "other kinds of headers do not");
  Require(Opens("", absl::StrCat("token=", encoded)) == right &&
              Opens("Basic x", absl::StrCat("a=1&token=", encoded, "&b=2")) ==
                  right,
          "the address opens with the exact token");
  Require(!Opens("", absl::StrCat("nottoken=", encoded)) &&
              !Opens("", absl::StrCat("tokens=", encoded)),
          "by its name");
  Require(!Opens("Bearer ", absl::StrCat("token=", encoded)),
          "who shows two shows the header's");
}

void ReadFile(const std::string& text) {
  const auto token = PageToken(WriteScratch("token", text));
  const auto plain = [](absl::string_view word) {
    return word.size() >= kLeast && word.size() <= kMost &&
           std::all_of(word.begin(), word.end(), [](char c) {
             return absl::ascii_isalnum(c) || c == '-' || c == '_';
           });
  };
  if (!token.ok()) RequireReason(token.status());
  Require(!token.ok() || plain(*token), "a token is letters, and enough");
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  Require(token.ok() == (plain(word) && text.size() <= kMost + 2) &&
              (!token.ok() || *token == word),
          "the file's only word is the token");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string query = absl::StrCat("token=", kToken);
  return {
      Input().Byte(0).Rest("\n").Rest(query).bytes(),
      Input().Byte(0).Rest("Bearer x\na=1&token=%30%31+").bytes(),
      Input().Byte(0).Rest(absl::StrCat("Bearer ", kToken, "\n")).bytes(),
      Input().Byte(1).Byte(0).bytes(),
      Input().Byte(1).Byte(1).Byte(3).Byte(3).bytes(),
      Input().Byte(1).Byte(2).Byte(32).Byte(0).Byte(0).Byte(0).Byte(1).bytes(),
      Input().Byte(2).Rest(kToken).Rest("\n").bytes(),
      Input().Byte(2).Rest(RandomToken()).bytes(),
      Input().Byte(2).Rest(std::string(kMost, 'a')).Rest("\r\n").bytes(),
      Input().Byte(2).Rest(std::string(kMost + 3, 'a')).bytes(),
      Input().Byte(2).Rest(std::string(99, ' ')).Rest(kToken).bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0: {
      const std::string authorization = input.Line();
      fuzz::Ask(authorization, input.Rest());
      break;
    }
    case 1:
      fuzz::AskNearly(input);
      break;
    default:
      fuzz::ReadFile(input.Rest());
  }
  return 0;
}
