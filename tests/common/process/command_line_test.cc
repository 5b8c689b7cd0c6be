#include "common/process/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// What Parse prints on stderr; it must refuse `args`.
std::string Refused(CommandLine& line, const std::vector<std::string>& args) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(line.Parse(args), kExitUsage);
  return testing::internal::GetCapturedStderr();
}

// What Parse prints on stdout for --help.
std::string Help(CommandLine& line) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(line.Parse({"--help"}), 0);
  return testing::internal::GetCapturedStdout();
}

TEST(CommandLine, BindsEveryKindOfValue) {
  CommandLine line("Tests.", "psring x");
  std::string text = "a";
  int ranks = 2;
  int64_t size = 4;
  uint64_t seed = 0;
  double rate = 0.5;
  bool check = false;
  std::vector<std::string> operations;
  line.Add("operation", operations, "What to do");
  line.Add("--text", text, "");
  line.Add("--ranks", ranks, "");
  line.Add("--size", size, "");
  line.Add("--seed", seed, "");
  line.Add("--rate", rate, "");
  line.Add("--check", check, "");
  ASSERT_FALSE(
      line.Parse({"one", "two", "--text=b", "--ranks", "3", "--size=5000000000",
                  "--seed=7", "--rate=0.25", "--check"}));
  EXPECT_THAT(operations, ElementsAre("one", "two"));
  EXPECT_EQ(text, "b");
  EXPECT_EQ(ranks, 3);
  EXPECT_EQ(size, 5000000000);
  EXPECT_EQ(seed, 7u);
  EXPECT_EQ(rate, 0.25);
  EXPECT_TRUE(check);
  EXPECT_TRUE(line.Has("--rate"));
}

TEST(CommandLine, RefusesAValueInOneLineWithFlagValueAndWhatIsAllowed) {
  CommandLine line("Tests.", "psring x");
  int ranks = 2;
  double rate = 1;
  std::string kind = "a", target = "b";
  line.Add("--ranks", ranks, "").Range(2, 64);
  line.Add("--rate", rate, "").Range(0.5, 2.0);
  line.Add("--kind", kind, "").OneOf({"a", "b"});
  line.Add("--target", target, "").Check([](const std::string& value) {
    return value == "b" ? "" : "must be b";
  });
  EXPECT_THAT(
      Refused(line, {"--ranks=65"}),
      AllOf(HasSubstr("psring x: --ranks"), HasSubstr("65"), HasSubstr("2"),
            HasSubstr("64"), HasSubstr("(see psring x --help)\n")));
  EXPECT_THAT(Refused(line, {"--rate=2.5"}), HasSubstr("--rate"));
  EXPECT_THAT(Refused(line, {"--rate=nan"}),
              HasSubstr("--rate: nan is not a number"));
  EXPECT_THAT(Refused(line, {"--kind=c"}), HasSubstr("{a,b}"));
  EXPECT_THAT(Refused(line, {"--target=c"}), HasSubstr("must be b"));
  EXPECT_THAT(Refused(line, {"--other=1"}), HasSubstr("--other"));
  EXPECT_FALSE(line.Parse({"--ranks=64", "--rate=2", "--kind=b"}));
}

TEST(CommandLine, AShortFlagTakesItsValueAfterAnEqualsSignToo) {
  CommandLine line("Tests.", "psring x");
  int number = 0;
  std::string text;
  line.Add("-n,--number", number, "");
  line.Add("--text", text, "");
  EXPECT_FALSE(line.Parse({"-n=4", "--text", "-=x"}));
  EXPECT_EQ(number, 4);
  EXPECT_FALSE(line.Parse({"-n5"}));
  EXPECT_EQ(number, 5);
}

// It does not take the next flag for its value.
TEST(CommandLine, AFlagWithAnEmptyValueIsRefused) {
  CommandLine line("Tests.", "psring x");
  int number = 0;
  bool quick = false;
  std::string text;
  line.Add("-n,--number", number, "");
  line.Add("--text", text, "");
  line.Add("--quick", quick, "");
  for (const char* flag : {"--text=", "-n=", "--quick="}) {
    EXPECT_THAT(Refused(line, {flag, "--quick"}),
                HasSubstr(absl::StrCat(flag, " has no value")));
  }
  EXPECT_THAT(Refused(line, {"--text", "--number=2"}),
              HasSubstr("--text has no value"));
  std::vector<std::string> passed_on;
  line.Add("--pass", passed_on, "").OneValueEach();
  EXPECT_FALSE(line.Parse({"--pass", "--quick"}));
  EXPECT_THAT(passed_on, ElementsAre("--quick"));
  EXPECT_FALSE(line.Parse({"--quick", "--text", "--a"}));
  EXPECT_EQ(text, "--a");
  EXPECT_FALSE(line.Parse({"--text=a=", "--quick"}));
  EXPECT_EQ(text, "a=");
  EXPECT_TRUE(quick);
}

TEST(CommandLine, HelpShowsDefaultsAndNoHiddenFlag) {
  CommandLine line("Tests much.", "psring x");
  int ranks = 12, threads = 34;
  std::string secret = "value";
  line.Add("--ranks", ranks, "Number of ranks");
  line.Add("--threads", threads, "Threads").Default("");
  line.Add("--secret", secret, "").Hidden();
  line.Footer("Example: psring x");
  EXPECT_THAT(Help(line),
              AllOf(HasSubstr("Tests much."), HasSubstr("Number of ranks"),
                    HasSubstr("12"), Not(HasSubstr("34")),
                    Not(HasSubstr("secret")), HasSubstr("Example: psring x")));
  ASSERT_FALSE(line.Parse({"--secret=1", "--secret=2"}));
  EXPECT_EQ(secret, "2");
}

TEST(CommandLine, ListsFlagsAsTypedOrTheirDefaults) {
  CommandLine line("Tests.", "psring x");
  int ranks = 2, steps = 3;
  std::vector<std::string> sizes;
  std::string secret;
  line.Add("--ranks", ranks, "");
  line.Add("--steps", steps, "");
  line.Add("--sizes", sizes, "");
  line.Add("--secret", secret, "").Hidden();
  line.Version([] { return "1"; });
  ASSERT_FALSE(line.Parse({"--steps=04", "--sizes", "1KB", "2KB"}));
  std::vector<std::string> all;
  for (const CommandLine::FlagValue& flag : line.All()) {
    all.push_back(flag.name + "=" + flag.value);
  }
  EXPECT_THAT(all, ElementsAre("--ranks=2", "--steps=04", "--sizes=1KB,2KB"));
}

TEST(CommandLine, ARepeatedFlagTakesOneValueEachTime) {
  CommandLine line("Tests.", "psring x");
  std::vector<std::string> axis, flags;
  std::string rest;
  line.Add("--axis", axis, "").Repeatable();
  line.Add("--flag", flags, "").OneValueEach();
  line.Add("rest", rest, "");
  ASSERT_FALSE(line.Parse(
      {"--axis", "a,b", "--axis=c", "--flag=--x", "--flag", "y", "end"}));
  EXPECT_THAT(axis, ElementsAre("a,b", "c"));
  EXPECT_THAT(flags, ElementsAre("--x", "y"));
  EXPECT_EQ(rest, "end");
}

TEST(CommandLine, RefusesFlagsThatExcludeEachOther) {
  CommandLine line("Tests.", "psring x");
  int epochs = 10, steps = 0;
  line.Add("--epochs", epochs, "Epochs");
  line.Add("--steps", steps, "Steps").Excludes("--epochs").Default("");
  ASSERT_FALSE(line.Parse({"--steps=3"}));
  EXPECT_EQ(steps, 3);
  const std::string refused = Refused(line, {"--steps=3", "--epochs=1"});
  EXPECT_THAT(refused, HasSubstr("--steps"));
  EXPECT_THAT(refused, HasSubstr("--epochs"));
}

TEST(CommandLine, HelpShowsGroupsAndTheVersion) {
  CommandLine line("Tests.", "psring x");
  int rank = -1;
  line.Add("--rank", rank, "Rank").Group("Cluster").Default("");
  line.Version([] { return std::string("library 1.2"); });
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Parse({"--help"}), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("Cluster:"));
  EXPECT_THAT(help, Not(HasSubstr("-1")));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Parse({"--version"}), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "library 1.2\n");
}

TEST(CommandLine, ASubcommandIsRequiredAndKnown) {
  CommandLine line("Tests.", "psring x");
  std::string folder;
  CommandLine& merge = line.AddSubcommand("merge", "Merges");
  CommandLine& explain = line.AddSubcommand("explain", "Explains");
  explain.Add("DIR", folder, "Folder").Required();
  EXPECT_THAT(Refused(line, {}),
              HasSubstr("a subcommand is missing: give merge or explain"));
  EXPECT_THAT(Refused(line, {"explan", "there"}),
              HasSubstr("no subcommand 'explan': give merge or explain"));
  EXPECT_THAT(Refused(line, {"explain"}), HasSubstr("DIR"));
  ASSERT_FALSE(line.Parse({"explain", "there"}));
  EXPECT_TRUE(explain.chosen());
  EXPECT_FALSE(merge.chosen());
  EXPECT_EQ(folder, "there");
}

}  // namespace
}  // namespace psring
