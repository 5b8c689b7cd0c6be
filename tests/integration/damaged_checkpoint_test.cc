// Checkpoints that cannot be read or written are found before training starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using testing::TestDirectory;
using testing::WriteFile;

// What a worker says when all is ready.
constexpr char kTrains[] = " trains lenet ";

Ran TrainLeNet(const std::string& mode, const std::string& dir, int steps,
               const std::vector<std::string>& more = {}) {
  LaunchedJob job = {.mode = mode, .workers = 1};
  job.worker_flags = {
      "--model=lenet",           "--data=digits:train=32,test=4",
      "--batch-size=4",          "--momentum=0.5",
      "--checkpoint-dir=" + dir, absl::StrCat("--steps=", steps)};
  job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
  return RunLaunch(job);
}

std::map<std::string, std::string> AllFiles(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    files[entry.path()] = entry.is_regular_file() ? ReadFile(entry.path()) : "";
  }
  return files;
}

void ExpectRefused(const Ran& ran, const std::string& culprit) {
  EXPECT_GT(ran.code, 0);
  EXPECT_LT(ran.code, 128);
  EXPECT_THAT(ran.output, AllOf(HasSubstr(culprit), Not(HasSubstr(kTrains)),
                                Not(HasSubstr("frame #"))));
}

struct Damage {
  std::string name;
  std::string file;
  void (*inflict)(const std::string& path);
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.name << "Of" << damage.file.substr(0, damage.file.find('.'));
}

void Truncate(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) - 1);
}

void Empty(const std::string& path) { fs::resize_file(path, 0); }

void FlipByte(const std::string& path) {
  std::string bytes = ReadFile(path);
  bytes[bytes.size() / 2] ^= 1;
  WriteFile(path, bytes);
}

void Remove(const std::string& path) { fs::remove(path); }

std::vector<Damage> AllDamages() {
  std::vector<Damage> damages;
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    damages.push_back({"Truncation", file, Truncate});
    damages.push_back({"Emptying", file, Empty});
    damages.push_back({"FlippedByte", file, FlipByte});
    damages.push_back({"Absence", file, Remove});
  }
  return damages;
}

class DamagedCheckpointTest : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedCheckpointTest, IsRefusedWithTheFilesName) {
  const std::string folder = TestDirectory();
  const Ran wrote = TrainLeNet("ring", folder, 2);
  ASSERT_EQ(wrote.code, 0) << wrote.output;
  const std::string path =
      absl::StrCat(CheckpointAt(folder, 2), "/", GetParam().file);
  GetParam().inflict(path);
  ExpectRefused(TrainLeNet("ring", folder, 4, {"--resume"}), path);
}

INSTANTIATE_TEST_SUITE_P(All, DamagedCheckpointTest,
                         ::testing::ValuesIn(AllDamages()),
                         ::testing::PrintToStringParamName());

class RefusedCheckpointTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string mode_ = GetParam();
  const std::string folder_ = TestDirectory();
};

TEST_P(RefusedCheckpointTest, OverwritesNothingWithoutResume) {
  const Ran wrote = TrainLeNet(mode_, folder_, 2);
  ASSERT_EQ(wrote.code, 0) << wrote.output;
  const auto before = AllFiles(folder_);
  const Ran again = TrainLeNet(mode_, folder_, 2, {"--seed=1"});
  ExpectRefused(again, CheckpointAt(folder_, 2));
  EXPECT_THAT(again.output, HasSubstr("--resume"));
  EXPECT_EQ(AllFiles(folder_), before);
}

TEST_P(RefusedCheckpointTest, FindsThatTheFolderCannotBeWritten) {
  const std::string file = folder_ + "/file";
  WriteFile(file, "no folder");
  ExpectRefused(TrainLeNet(mode_, file + "/below", 2), file + "/below");
}

TEST_P(RefusedCheckpointTest, FindsThatThereIsNothingToResume) {
  ExpectRefused(TrainLeNet(mode_, folder_, 2, {"--resume"}), folder_);
}

TEST_P(RefusedCheckpointTest, NamesTheSettingThatDiffers) {
  const Ran wrote = TrainLeNet(mode_, folder_, 2);
  ASSERT_EQ(wrote.code, 0) << wrote.output;
  const Ran other =
      TrainLeNet(mode_, folder_, 4, {"--resume", "--optimizer=nesterov"});
  ExpectRefused(other, CheckpointAt(folder_, 2));
  EXPECT_THAT(other.output,
              AllOf(HasSubstr("--optimizer"), HasSubstr("nesterov")));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedCheckpointTest,
                         ::testing::Values("ring", "ps"), [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace psring
