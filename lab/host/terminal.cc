#include "lab/host/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {

int TerminalColumns(FILE* out) {
  const char* terminal = getenv("TERM");
  if (!isatty(fileno(out)) ||
      (terminal != nullptr && absl::string_view(terminal) == "dumb")) {
    return 0;
  }
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool TakesColours(FILE* out) {
  const char* no_colour = getenv("NO_COLOR");
  return TerminalColumns(out) > 0 &&
         (no_colour == nullptr || no_colour[0] == '\0');
}

std::string ProgressBar(double share, int width) {
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  return absl::StrCat("[", std::string(filled, '#'),
                      std::string(width - filled, '.'), "]");
}

void LiveBlock::Print(absl::string_view text) {
  Write(absl::StrCat(Erased(), text, Drawn()));
}

void LiveBlock::Draw(std::vector<std::string> lines) {
  if (!live()) return;
  // A line that wraps could not be redrawn.
  for (std::string& line : lines)
    line.resize(std::min<size_t>(line.size(), columns_ - 1));
  if (lines == lines_) return;
  const std::string erased = Erased();
  lines_ = std::move(lines);
  Write(absl::StrCat(erased, Drawn()));
}

std::string LiveBlock::Erased() const {
  // The block's first line, and all that is below its start.
  return lines_.empty() ? ""
                        : absl::StrCat("\033[", lines_.size(), "A\r\033[J");
}

std::string LiveBlock::Drawn() const {
  std::string text;
  for (const std::string& line : lines_) absl::StrAppend(&text, line, "\n");
  return text;
}

// One write, so that lines of others never fall into it.
void LiveBlock::Write(absl::string_view text) {
  if (text.empty() || closed_) return;
  errno = 0;
  const bool written = fwrite(text.data(), 1, text.size(), out_) == text.size();
  if (fflush(out_) == 0 && written) return;
  closed_ = errno == EPIPE || errno == EIO;
}

}  // namespace psring
