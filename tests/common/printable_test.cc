#include "common/printable.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(Printable, KeepsWhatPeopleWrite) {
  const char* const texts[] = {"", "worker 1\n\tfailed",
                               "Grüße, 你好, 🙂", "\xef\xbf\xbd"};
  for (const char* text : texts) EXPECT_EQ(Printable(text), text);
}

TEST(Printable, EscapesWhatTerminalsObey) {
  EXPECT_EQ(Printable("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  // CSI in one character, U+009B.
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "2J"),
            "a\\xc2\\x9b2J");
}

// protobuf does not parse a message with such a text.
TEST(Printable, EscapesWhatIsNotUtf8) {
  const char* const broken[] = {
      "\xff",              // never
      "\x80",              // continues nothing
      "\xc3",              // ends early
      "\xc3(",             // is not continued
      "\xc0\xaf",          // longer than it needs to be
      "\xe0\x80\xaf",      // the same
      "\xed\xa0\x80",      // half of a surrogate pair
      "\xf4\x90\x80\x80",  // beyond U+10FFFF
  };
  for (const char* text : broken) {
    const std::string printable = Printable(text);
    EXPECT_EQ(printable[0], '\\') << text;
    for (const char c : printable) EXPECT_GT(c, 0) << text;
  }
  EXPECT_EQ(Printable("a\xff\xc3\xa9"), "a\\xff\xc3\xa9");
}

TEST(Printable, CutsBetweenCharactersAndSaysSo) {
  EXPECT_EQ(Printable("12\xc3\xa9xyz", 3), "12 ... (5 more bytes)");
  EXPECT_EQ(Printable("12\xc3\xa9xyz", 4), "12\xc3\xa9 ... (3 more bytes)");
  EXPECT_EQ(WholeCharacters("12\xc3\xa9", 3), "12");
  EXPECT_EQ(WholeCharacters("12\xc3\xa9", 4), "12\xc3\xa9");
}

}  // namespace
}  // namespace psring
