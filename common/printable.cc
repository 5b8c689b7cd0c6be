#include "common/printable.h"

#include "absl/strings/str_cat.h"

namespace psring {

std::string Printable(absl::string_view text, size_t max_bytes) {
  std::string printable;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control =
        (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    if (control) {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      printable.push_back(c);
    }
  }
  if (text.size() > max_bytes) {
    absl::StrAppend(&printable, " ... (", text.size() - max_bytes,
                    " more bytes)");
  }
  return printable;
}

}  // namespace psring
