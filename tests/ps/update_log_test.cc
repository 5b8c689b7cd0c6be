#include "ps/update_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestDirectory;

class UpdateLogTest : public ::testing::Test {
 protected:
  UpdateLogTest() {
    for (int i = 0; i < 4; ++i) job_.add_workers();
    for (int i = 0; i < 2; ++i) {
      job_.add_servers()->add_endpoints("one");
      job_.mutable_servers(i)->add_endpoints("another");
    }
    job_.mutable_spec()->set_seed(7);
    job_.mutable_spec()->set_record_dir(dir_);
  }

  void Record(int shard = 1) {
    auto writer = UpdateLogWriter::Create(dir_, UpdateLogHeaderOf(job_, shard));
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& [piece, turn] : kTaken) {
      ASSERT_TRUE(writer->Append(piece, turn).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }

  auto Read(int shard = 1) {
    return ReadUpdateLog(dir_, UpdateLogHeaderOf(job_, shard), 2);
  }
  std::string ErrorOf(int shard = 1) {
    return std::string(Read(shard).status().message());
  }

  const std::vector<std::pair<int, UpdateTurn>> kTaken = {
      {0, {3, 0}}, {1, {2, 0}}, {0, {2, 0}}, {0, {3, 1}}};
  const std::string dir_ = TestDirectory() + "/log";
  const std::string path_ = dir_ + "/shard-0001.updates";
  proto::Welcome job_;
};

TEST_F(UpdateLogTest, GivesEveryPiecesTurnsInOrder) {
  Record();
  job_.mutable_spec()->clear_record_dir();
  job_.mutable_spec()->set_replay_dir(dir_);
  const auto turns = Read();
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ((*turns)[0], (std::vector<UpdateTurn>{{3, 0}, {2, 0}, {3, 1}}));
  EXPECT_EQ((*turns)[1], (std::vector<UpdateTurn>{{2, 0}}));
}

TEST_F(UpdateLogTest, AnUpdateOfNoPieceOrNoWorkerIsAnError) {
  const std::pair<int, UpdateTurn> wrong[] = {{2, {0, 0}}, {0, {4, 0}}};
  for (const auto& [piece, turn] : wrong) {
    fs::remove(path_);
    auto writer = UpdateLogWriter::Create(dir_, UpdateLogHeaderOf(job_, 1));
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Append(0, {3, 0}).ok());
    ASSERT_TRUE(writer->Append(piece, turn).ok());
    ASSERT_TRUE(writer->Finish().ok());
    EXPECT_THAT(ErrorOf(), HasSubstr("is damaged after 1 updates"));
  }
}

TEST_F(UpdateLogTest, NothingIsOverwritten) {
  Record();
  const auto again = UpdateLogWriter::Create(dir_, UpdateLogHeaderOf(job_, 1));
  EXPECT_THAT(std::string(again.status().message()),
              AllOf(HasSubstr("--record"), HasSubstr(path_)));
}

TEST_F(UpdateLogTest, AnotherJobIsRefusedWithWhatDiffers) {
  Record();
  job_.mutable_spec()->set_seed(8);
  EXPECT_THAT(ErrorOf(), HasSubstr("seed: 8 here, 7 in the job that was"));
  job_.mutable_servers(0)->add_endpoints("a third");
  EXPECT_THAT(ErrorOf(),
              HasSubstr("--shard-threads of all servers: 5 here, 4"));
  job_.mutable_servers()->RemoveLast();
  EXPECT_THAT(ErrorOf(), HasSubstr("--servers: 1 here, 2 in the job"));
  job_.add_workers();
  EXPECT_THAT(ErrorOf(), HasSubstr("--workers: 5 here, 4 in the job"));
}

TEST_F(UpdateLogTest, AMissingFileIsNamed) {
  EXPECT_THAT(ErrorOf(), HasSubstr(path_));
}

// A job of more shards has some that nobody recorded.
TEST_F(UpdateLogTest, TheFirstFileTellsWhyAnotherIsMissing) {
  Record(0);
  job_.add_servers()->add_endpoints("one");
  EXPECT_THAT(ErrorOf(4), HasSubstr("--servers: 3 here, 2 in the job"));
}

TEST_F(UpdateLogTest, TheFileOfAnotherShardIsNotTaken) {
  Record();
  fs::copy(path_, dir_ + "/shard-0000.updates");
  EXPECT_THAT(ErrorOf(0), HasSubstr("no recording of shard 0 in " + dir_));
}

// Wherever it is cut.
TEST_F(UpdateLogTest, ACutFileIsAnError) {
  Record();
  for (auto size = fs::file_size(path_); size-- > 0;) {
    fs::resize_file(path_, size);
    ASSERT_THAT(ErrorOf(), AllOf(HasSubstr("--replay"), HasSubstr(path_)))
        << size;
  }
}

TEST_F(UpdateLogTest, ARunThatDidNotEndHasNoWholeRecording) {
  {
    auto writer = UpdateLogWriter::Create(dir_, UpdateLogHeaderOf(job_, 1));
    ASSERT_TRUE(writer.ok() && writer->Append(0, {1, 0}).ok());
  }
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("is cut after 1 updates"),
                               HasSubstr("was stopped")));
}

TEST_F(UpdateLogTest, AChangedByteIsAnError) {
  Record();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-24, std::ios::end);  // the last entry's step
  file.put('\7');
  file.close();
  EXPECT_THAT(ErrorOf(), HasSubstr("is damaged after 4 updates"));
}

TEST_F(UpdateLogTest, ARecordingOfAnotherVersionIsSaidToBeOne) {
  Record();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(7);  // of "psringU2"
  file.put('1');
  file.close();
  EXPECT_THAT(ErrorOf(), HasSubstr("is not a recording by this version"));
}

}  // namespace
}  // namespace psring
