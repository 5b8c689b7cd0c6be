#include "lab/host/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/colours.h"

namespace psring {
namespace {

// What `show` makes of a terminal of so many columns; 0: of a file.
template <typename Show>
std::string Printed(int columns, const Show& show) {
  char* text = nullptr;
  size_t size = 0;
  FILE* out = open_memstream(&text, &size);
  LiveBlock block(out, columns);
  show(block);
  fclose(out);
  std::string printed(text, size);
  free(text);
  return printed;
}

TEST(LiveBlock, StaysBelowWhatIsPrinted) {
  const std::string printed = Printed(80, [](LiveBlock& block) {
    block.Print("first\n");
    block.Draw({"one", "two"});
    block.Print("second\n");
    block.Draw({"three"});
    block.Draw({});
    block.Print("last\n");
  });
  EXPECT_EQ(printed,
            "first\n"
            "one\ntwo\n"
            "\033[2A\r\033[Jsecond\none\ntwo\n"
            "\033[2A\r\033[Jthree\n"
            "\033[1A\r\033[J"
            "last\n");
}

TEST(LiveBlock, IsNotWrittenAgainWhereNothingIsNew) {
  EXPECT_EQ(Printed(80,
                    [](LiveBlock& block) {
                      block.Draw({"one"});
                      block.Draw({"one"});
                    }),
            "one\n");
}

TEST(LiveBlock, LinesFitTheTerminal) {
  EXPECT_EQ(Printed(5,
                    [](LiveBlock& block) {
                      block.Draw({"123456", "12"});
                    }),
            "1234\n12\n");
}

TEST(LiveBlock, IsNotShownInAFile) {
  const std::string printed = Printed(0, [](LiveBlock& block) {
    block.Draw({"one"});
    block.Print("a line\n");
    EXPECT_FALSE(block.live());
  });
  EXPECT_EQ(printed, "a line\n");
}

TEST(LiveBlock, IsTakenAwayFromATerminalThatIsSlow) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  FILE* const out = fdopen(ends[1], "w");
  std::string read_so_far;
  {
    LiveBlock block(out, 80);
    block.Draw({"one"});
    // More than a pipe takes.
    block.Print(absl::StrCat(std::string(1 << 17, 'x'), "\n"));
    EXPECT_GT(block.left(), 0);
    block.Draw({"two"});
    block.Draw({});
    std::string piece(1 << 16, ' ');
    while (block.left() > 0) {
      const ssize_t n = read(ends[0], piece.data(), piece.size());
      ASSERT_GT(n, 0);
      read_so_far.append(piece, 0, static_cast<size_t>(n));
      block.Flush();
    }
  }
  fclose(out);
  std::string rest(1 << 17, ' ');
  const ssize_t n = read(ends[0], rest.data(), rest.size());
  ASSERT_GT(n, 0);
  read_so_far.append(rest, 0, static_cast<size_t>(n));
  close(ends[0]);
  const std::string end = "x\none\n\033[1A\r\033[J";
  EXPECT_EQ(read_so_far.substr(read_so_far.size() - end.size()), end);
}

TEST(ProgressBar, IsFilledByItsShare) {
  EXPECT_EQ(ProgressBar(0, 4), "[....]");
  EXPECT_EQ(ProgressBar(0.5, 4), "[##..]");
  EXPECT_EQ(ProgressBar(7, 4), "[####]");
}

class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    winsize size = {};
    size.ws_col = 123;
    ASSERT_EQ(openpty(&leader_, &follower_, nullptr, nullptr, &size), 0);
    out_ = fdopen(follower_, "w");
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
  }
  void TearDown() override {
    fclose(out_);
    close(leader_);
  }

  int leader_ = -1, follower_ = -1;
  FILE* out_ = nullptr;
};

TEST_F(TerminalTest, HasAWidthAndTakesColours) {
  EXPECT_EQ(TerminalColumns(out_), 123);
  EXPECT_TRUE(TakesColours(out_));
}

TEST_F(TerminalTest, TakesNoColoursWhereTheUserWantsNone) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(TakesColours(out_));
  EXPECT_EQ(TerminalColumns(out_), 123);
}

TEST_F(TerminalTest, ThatIsDumbShowsNoBlock) {
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(TerminalColumns(out_), 0);
  EXPECT_FALSE(TakesColours(out_));
}

TEST(Terminal, AFileIsNone) {
  FILE* file = tmpfile();
  EXPECT_EQ(TerminalColumns(file), 0);
  EXPECT_FALSE(TakesColours(file));
  fclose(file);
}

}  // namespace
}  // namespace psring
