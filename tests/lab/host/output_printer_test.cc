#include "lab/host/output_printer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using testing::ReadFile;

class OutputPrinterTest : public ::testing::Test {
 protected:
  OutputPrinterTest() : out_(std::fopen((folder_ + "/shown").c_str(), "w")) {}
  ~OutputPrinterTest() override { std::fclose(out_); }

  // By a launcher of its own.
  void Print(const std::string& line, int times = 1) {
    auto printer = OutputPrinter::Create(out_, logs_);
    ASSERT_TRUE(printer.ok()) << printer.status();
    for (int i = 0; i < times; ++i) printer->Print("worker 0", line);
  }
  std::string Shown() const { return ReadFile(folder_ + "/shown"); }

  const std::string folder_ = testing::TestDirectory();
  const std::string logs_ = folder_ + "/logs";
  const std::string log_ = logs_ + "/worker-0.log";
  FILE* const out_;
};

TEST_F(OutputPrinterTest, KeepsLinesInAFile) {
  Print("step 1", 2);
  EXPECT_EQ(Shown(), "[worker 0] step 1\n[worker 0] step 1\n");
  EXPECT_EQ(ReadFile(log_), "step 1\nstep 1\n");
  // The page's token may be in it.
  EXPECT_EQ(
      std::filesystem::status(log_).permissions(),
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// They may say why a job has ended that is resumed now.
TEST_F(OutputPrinterTest, KeepsTheFilesOfEarlierJobs) {
  Print("lost worker 1");
  Print("resumes");
  EXPECT_EQ(ReadFile(log_), "resumes\n");
  EXPECT_EQ(ReadFile(log_ + ".1"), "lost worker 1\n");
}

TEST_F(OutputPrinterTest, SaysOnceThatAFileCannotBeWritten) {
  std::filesystem::create_directories(log_);
  Print("step 1", 2);
  EXPECT_EQ(Shown(), "[worker 0] step 1\n[job] --log-dir: cannot write " +
                         log_ +
                         " (Is a directory). The job continues; its output is "
                         "shown here\n[worker 0] step 1\n");
}

TEST_F(OutputPrinterTest, TakesThePlaceOfAnotherUsersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  std::filesystem::create_directories(logs_);
  std::ofstream(log_).close();
  ASSERT_EQ(chown(log_.c_str(), 65534, 65534), 0);
  std::ifstream of_the_other(log_);
  Print("step 1");
  EXPECT_EQ(ReadFile(log_), "step 1\n");
  EXPECT_EQ(of_the_other.get(), EOF);
}

TEST_F(OutputPrinterTest, SaysOnceThatTheDiskIsFull) {
  std::filesystem::create_directories(logs_);
  std::filesystem::create_symlink("/dev/full", log_);
  Print("step 1", 2);
  EXPECT_THAT(Shown(), ::testing::HasSubstr("(No space left on device)"));
}

}  // namespace
}  // namespace psring
