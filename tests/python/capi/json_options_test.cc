#include "python/capi/json_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;

// What the reader says of these options.
std::string ErrorOf(const std::string& text) {
  auto options = JsonOptions::Parse("init", text);
  if (!options.ok()) return std::string(options.status().message());
  std::string mode;
  int servers = 1;
  double timeout = 60;
  bool flag = false;
  options->OneOf("mode", mode, {"ps", "ring"});
  options->Integer("servers", servers, 1, 8);
  options->Number("timeout", timeout, 1, 100);
  options->Flag("flag", flag);
  options->Array("list");
  return std::string(options->Finish().message());
}

TEST(JsonOptions, TakesWhatIsThereAndLeavesTheRest) {
  auto options = JsonOptions::Parse("init", R"({"servers": 3, "mode": null})");
  ASSERT_TRUE(options.ok()) << options.status();
  std::string mode = "ring";
  int servers = 1;
  double timeout = 60;
  options->Text("mode", mode);
  options->Integer("servers", servers, 1, 8);
  options->Number("timeout", timeout, 1, 100);
  EXPECT_TRUE(options->Finish().ok());
  EXPECT_EQ(servers, 3);
  EXPECT_EQ(mode, "ring");
  EXPECT_EQ(timeout, 60);
}

TEST(JsonOptions, NamesTheKeyAndWhatItTakes) {
  EXPECT_THAT(ErrorOf("nonsense"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("no JSON object"));
  EXPECT_EQ(ErrorOf(R"({"mode": "star"})"),
            "init: mode is 'star'; it takes ps, ring");
  EXPECT_EQ(ErrorOf(R"({"mode": 3})"), "init: mode must be a text");
  EXPECT_EQ(ErrorOf(R"({"servers": 9})"),
            "init: servers is 9; it takes a whole number from 1 to 8");
  // It would be -1 as an int64_t.
  EXPECT_THAT(WholeNumber(18446744073709551615u), Eq(std::nullopt));
  EXPECT_EQ(ErrorOf(R"({"servers": 1.5})"),
            "init: servers is 1.5; it takes a whole number from 1 to 8");
  EXPECT_EQ(ErrorOf(R"({"timeout": "x"})"),
            "init: timeout is \"x\"; it takes a number from 1 to 100");
  EXPECT_EQ(ErrorOf(R"({"flag": 1})"), "init: flag must be true or false");
  EXPECT_EQ(ErrorOf(R"({"list": 1})"), "init: list must be a list");
  EXPECT_EQ(ErrorOf(R"({"nonsense": 1})"),
            "init: the option 'nonsense' is not known");
}

}  // namespace
}  // namespace psring
