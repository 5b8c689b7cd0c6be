#include "lab/host/line_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace psring {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::vector<std::string> Lines(const std::vector<std::string>& pieces) {
  LineBuffer buffer;
  std::vector<std::string> lines;
  const auto keep = [&](absl::string_view line) { lines.emplace_back(line); };
  Time now;  // a second later with each piece
  for (const std::string& piece : pieces) {
    buffer.Append(now += absl::Seconds(1), piece, keep);
  }
  buffer.Finish(keep);
  return lines;
}

TEST(LineBuffer, JoinsPiecesAndCutsAtNewlines) {
  EXPECT_THAT(Lines({"a", "b\nc\n", "\nd"}), ElementsAre("ab", "c", "", "d"));
}

TEST(LineBuffer, DropsCarriageReturns) {
  EXPECT_THAT(Lines({"a\r", "\nb"}), ElementsAre("a", "b"));
}

// As a progress bar goes on: shown at first, now and then, and at its end.
TEST(LineBuffer, OverwrittenLinesAreFew) {
  EXPECT_THAT(Lines({"\r 1%", "\r 2%\r", " 3%", "\r 4%", "\r 5%", "\r 6%",
                     "\r 7%", "\r 8%", "\rdone\nb\n"}),
              ElementsAre(" 1%", " 6%", "done", "b"));
  EXPECT_THAT(Lines({"x\r", "\r\n", "\r\r\ry"}), ElementsAre("x", "y"));
}

TEST(LineBuffer, AnEndlessLineIsCut) {
  const std::string big(LineBuffer::kMaxLineBytes * 2 + 1, 'x');
  EXPECT_THAT(Lines({big, "y\n"}),
              ElementsAre(SizeIs(LineBuffer::kMaxLineBytes),
                          SizeIs(LineBuffer::kMaxLineBytes), "xy"));
}

}  // namespace
}  // namespace psring
