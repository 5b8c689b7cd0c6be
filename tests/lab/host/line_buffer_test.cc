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
  for (const std::string& piece : pieces) buffer.Append(piece, keep);
  buffer.Finish(keep);
  return lines;
}

TEST(LineBuffer, JoinsPiecesAndCutsAtNewlines) {
  EXPECT_THAT(Lines({"a", "b\nc\n", "\nd"}), ElementsAre("ab", "c", "", "d"));
}

TEST(LineBuffer, DropsCarriageReturns) {
  EXPECT_THAT(Lines({"a\r", "\nb"}), ElementsAre("a", "b"));
}

TEST(LineBuffer, AnEndlessLineIsCut) {
  const std::string big(LineBuffer::kMaxLineBytes * 2 + 1, 'x');
  EXPECT_THAT(Lines({big, "y\n"}),
              ElementsAre(SizeIs(LineBuffer::kMaxLineBytes),
                          SizeIs(LineBuffer::kMaxLineBytes), "xy"));
}

}  // namespace
}  // namespace psring
