#include "lab/study/study_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StudyFolderTest : public testing::Test {
 protected:
  StudyFolderTest() {
    std::filesystem::remove_all(path_);
    setup_.flags = {{"--modes", "ring"}, {"--epochs", "3"}, {"--", ""}};
    setup_.commit = "abc";
    setup_.machine.cpu = "A";
  }

  std::string OpenError() {
    const auto folder = StudyFolder::Open(path_, setup_);
    return folder.ok() ? "" : std::string(folder.status().message());
  }

  const std::string path_ = testing::TempDir() + "study";
  StudySetup setup_;
};

TEST_F(StudyFolderTest, KeepsFinishedRunsForTheNextTime) {
  const std::vector<Point> points = {At({}), At({{"seed", "1"}})};
  RunResult run;
  run.point = points[1];
  run.seconds = 4;
  run.epochs.emplace_back();
  {
    auto folder = StudyFolder::Open(path_, setup_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE((*folder)->Keep(1, run).ok());
  }
  auto folder = StudyFolder::Open(path_, setup_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto runs = (*folder)->FinishedRuns(points);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_FALSE((*runs)[0]);
  EXPECT_EQ((*runs)[1]->seconds, 4);
}

TEST_F(StudyFolderTest, AnotherSetupIsRefusedWithWhatDiffersAndTheRemedy) {
  ASSERT_EQ(OpenError(), "");
  setup_.flags[1].second = "5";
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("--epochs was 3 and is 5"),
                                 HasSubstr("choose another folder with --out"),
                                 HasSubstr(path_)));
  setup_.flags[1].second = "3";
  setup_.commit = "def";
  EXPECT_THAT(OpenError(), HasSubstr("the commit was abc and is def"));
  setup_.commit = "abc";
  setup_.flags.push_back({"--new", "1"});
  EXPECT_THAT(OpenError(), HasSubstr("--new was (nothing) and is 1"));
  setup_.flags.pop_back();
  setup_.machine.cores = 3;
  EXPECT_THAT(OpenError(), HasSubstr("the number of cores was 1 and is 3"));
  setup_.machine.cores = 1;
  // What counts for the report alone may change.
  setup_.flags.push_back({"--target-accuracy", "0.9"});
  EXPECT_EQ(OpenError(), "");
}

TEST_F(StudyFolderTest, TwoAtOnceAreRefused) {
  auto folder = StudyFolder::Open(path_, setup_);
  ASSERT_TRUE(folder.ok());
  EXPECT_THAT(OpenError(), HasSubstr("another psring compare uses --out="));
  folder->reset();
  EXPECT_EQ(OpenError(), "");
}

TEST_F(StudyFolderTest, WhatAKilledProcessLeftHalfWrittenGoesAway) {
  EXPECT_EQ(OpenError(), "");
  for (const char* name :
       {"runs/run-000.json.4711.tmp", "study.json.4711.tmp"}) {
    const std::string left = path_ + "/" + name;
    std::ofstream(left) << "{";
    EXPECT_EQ(OpenError(), "");
    EXPECT_FALSE(std::filesystem::exists(left)) << name;
  }
}

TEST_F(StudyFolderTest, WhatIsNotAStudysStays) {
  std::filesystem::create_directories(path_);
  std::ofstream(path_ + "/notes.tmp") << "mine";
  EXPECT_EQ(OpenError(), "");
  EXPECT_TRUE(std::filesystem::exists(path_ + "/notes.tmp"));
  for (const std::string name : {"runs", "scratch"}) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ + "/" + name);
    EXPECT_EQ(OpenError(), "");  // an empty one is nobody's
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ + "/" + name);
    std::ofstream(path_ + "/" + name + "/results.txt") << "mine";
    EXPECT_THAT(OpenError(), HasSubstr("has a folder " + name));
    EXPECT_TRUE(std::filesystem::exists(path_ + "/" + name + "/results.txt"));
  }
}

TEST_F(StudyFolderTest, AManifestThatIsNoneIsNamed) {
  std::filesystem::create_directories(path_);
  std::ofstream(path_ + "/study.json") << "[1]";
  EXPECT_THAT(OpenError(), HasSubstr("not a study"));
  const std::string deep = "{\"a\":" + std::string(1000, '[');
  for (const std::string& damaged : {std::string("{"), deep}) {
    std::ofstream(path_ + "/study.json") << damaged;
    EXPECT_THAT(OpenError(), HasSubstr("study.json is not a study's"));
  }
}

TEST_F(StudyFolderTest, ADamagedRunIsNamedWithTheRemedy) {
  auto folder = StudyFolder::Open(path_, setup_);
  RunResult other;
  other.point = At({{"seed", "9"}});
  other.epochs.emplace_back();
  ASSERT_TRUE((*folder)->Keep(0, other).ok());
  const auto error = [&] {
    return std::string((*folder)->FinishedRuns({At({})}).status().message());
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("run-000.json: it holds another run"),
                             HasSubstr("Remove it")));
  for (const char* damaged : {"{}", "{"}) {
    std::ofstream(path_ + "/runs/run-000.json") << damaged;
    EXPECT_THAT(error(),
                AllOf(HasSubstr("run-000.json: "), HasSubstr("Remove it")));
  }
}

TEST_F(StudyFolderTest, ScratchIsEmptyEachTime) {
  auto folder = StudyFolder::Open(path_, setup_);
  const auto scratch = (*folder)->MakeScratch();
  ASSERT_TRUE(scratch.ok());
  std::ofstream(*scratch + "/left") << "x";
  ASSERT_TRUE((*folder)->MakeScratch().ok());
  EXPECT_TRUE(std::filesystem::is_empty(*scratch));
  (*folder)->RemoveScratch();
  EXPECT_FALSE(std::filesystem::exists(*scratch));
}

}  // namespace
}  // namespace psring
