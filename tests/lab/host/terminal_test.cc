#include "lab/host/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

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
