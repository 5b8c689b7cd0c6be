#include "common/printable.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

bool Continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// The character that `text`, which is not empty, begins with, and how many
// bytes it has; 0: it begins with none (RFC 3629).
struct Character {
  uint32_t code = 0;
  size_t num_bytes = 0;
};
Character First(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  // A lead of n bytes has n ones before its first zero.
  const size_t num_bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < num_bytes) return {};
  uint32_t code = lead & (0x7f >> num_bytes);
  for (const char c : text.substr(1, num_bytes - 1)) {
    if (!Continues(c)) return {};
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  constexpr uint32_t kLeastOf[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeastOf[num_bytes] || code > 0x10ffff || surrogate) return {};
  return {code, num_bytes};
}

bool IsControl(uint32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') ||
         (code >= 0x7f && code < 0xa0);
}

}  // namespace

absl::string_view WholeCharacters(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && Continues(text[end])) --end;
  return text.substr(0, end);
}

std::string Printable(absl::string_view text, size_t max_bytes) {
  const absl::string_view shown = WholeCharacters(text, max_bytes);
  std::string printable;
  for (size_t i = 0; i < shown.size();) {
    const Character character = First(shown.substr(i));
    const size_t end = i + std::max<size_t>(character.num_bytes, 1);
    if (character.num_bytes > 0 && !IsControl(character.code)) {
      absl::StrAppend(&printable, shown.substr(i, end - i));
      i = end;
    }
    for (; i < end; ++i) {
      absl::StrAppend(
          &printable, "\\x",
          absl::Hex(static_cast<unsigned char>(shown[i]), absl::kZeroPad2));
    }
  }
  if (shown.size() < text.size()) {
    absl::StrAppend(&printable, " ... (", text.size() - shown.size(),
                    " more bytes)");
  }
  return printable;
}

}  // namespace psring
