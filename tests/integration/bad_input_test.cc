// What a user can get wrong on a command line: one clear line, a non-zero exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lab/host/gpu_info.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct WrongUse {
  Flags argv;
  Flags said;  // in the one line
};

std::ostream& operator<<(std::ostream& out, const WrongUse& use) {
  for (const std::string& arg : use.argv) out << arg << " ";
  return out;
}

void ExpectUsageError(const WrongUse& use) {
  SCOPED_TRACE(::testing::PrintToString(use));
  Flags argv = {PsringBinary()};
  argv.insert(argv.end(), use.argv.begin(), use.argv.end());
  const Ran ran = RunProcess(argv, Soon());
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
      << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(absl::StrCat("psring ", use.argv[0])));
  for (const std::string& part : use.said) {
    EXPECT_THAT(ran.output, HasSubstr(part));
  }
}

TEST(WrongFlag, OfPsIsNamedWithItsRange) {
  const WrongUse kWrong[] = {
      {{"ps", "--serverz=2"}, {"--serverz", "--help"}},
      {{"ps", "--servers=4097"}, {"--servers", "4097", "4096"}},
      {{"ps", "--workers=0"}, {"--workers", "0", "1 to 4096"}},
      {{"ps", "--workers=two"}, {"--workers", "two"}},
      {{"ps", "--shard-threads=65"}, {"--shard-threads", "0 to 64"}},
      {{"ps", "--join-timeout=0.5"}, {"--join-timeout", "0.5"}},
      {{"ps", "--log-level=loud"}, {"--log-level", "loud", "debug"}},
      {{"ps"}, {"--coordinator=HOST:PORT is missing"}},
      {{"ps", "--coordinator=here"}, {"--coordinator", "here", "HOST:PORT"}},
      {{"ps", "--coordinator=127.0.0.1:70000"}, {"--coordinator", "70000"}},
      {{"ps", "--coordinator=127.0.0.1:0", "--host-coordinator"},
       {"--workers=N is missing"}},
      {{"ps", "--coordinator=127.0.0.1:0", "--host-coordinator", "--workers=1",
        "--servers=2", "--rank=2"},
       {"ps 2", "--servers=2"}},
  };
  for (const WrongUse& use : kWrong) ExpectUsageError(use);
}

TEST(WrongFlag, OfWorkerIsNamedWithItsRange) {
  const WrongUse kWrong[] = {
      {{"worker", "--epoch=2"}, {"--epoch=2"}},
      {{"worker", "--mode=star"}, {"--mode", "star", "ring"}},
      {{"worker", "--batch-size=0"}, {"--batch-size", "0"}},
      {{"worker", "--lr=-1"}, {"--lr", "-1"}},
      {{"worker", "--momentum=2"}, {"--momentum", "2"}},
      {{"worker", "--optimizer=sdg"}, {"--optimizer", "sdg", "adamw"}},
      {{"worker", "--seed=-1"}, {"--seed", "-1"}},
      {{"worker", "--steps=0"}, {"--steps", "0"}},
      {{"worker", "--bucket-mb=0"}, {"--bucket-mb", "0"}},
      {{"worker", "--model=alexnet"}, {"--model: \"alexnet\"", "lenet"}},
      {{"worker", "--data=mnits:/x"}, {"--data: \"mnits:/x\"", "mnist:DIR"}},
      {{"worker", "--data=mnist"}, {"--data: \"mnist\"", "mnist:DIR"}},
      {{"worker", "--device=gpu"}, {"--device", "gpu", "cuda:INDEX"}},
      {{"worker", "--ring-backend=mpi"}, {"--ring-backend", "mpi", "nccl"}},
      {{"worker", "--slow=worker:2"}, {"--slow", "worker:2", "xFACTOR"}},
      {{"worker", "--compress=gzip"}, {"--compress", "gzip", "int8"}},
      {{"worker", "--compress=topk:2"}, {"--compress=topk:2", "at most 0.5"}},
      {{"worker", "--compress=int8", "--local-steps=4"},
       {"--compress=int8", "--local-steps"}},
      {{"worker", "--mode=ring", "--compress=int8", "--ring-backend=nccl"},
       {"--compress=int8", "--ring-backend=host"}},
  };
  for (const WrongUse& use : kWrong) ExpectUsageError(use);
}

TEST(WrongFlag, ThatContradictsAnotherIsNamedWithIt) {
  const WrongUse kWrong[] = {
      {{"worker", "--sync=ssp"},
       {"--sync=ssp needs the steps", "--sync=ssp:K"}},
      {{"worker", "--sync=ssp:x"}, {"\"ssp:x\": K in ssp:K is a number"}},
      {{"worker", "--sync=bsp:2"},
       {"\"bsp:2\" is not one of bsp, ssp:K, async"}},
      {{"run", "--page=127.0.0.1:80000", "--", "true"}, {"--page", "80000"}},
      {{"run", "--size=4", "--coordinator=127.0.0.1", "--", "true"},
       {"--coordinator", "127.0.0.1"}},
      {{"launch", "--page=x"}, {"--page", "x"}},
      {{"run", "--mode=ps", "--sync=ssp", "--", "true"},
       {"\"ssp\" needs the steps", "ssp:K"}},
      {{"run", "--mode=ps", "--sync=asp", "--", "true"},
       {"\"asp\" is not one of bsp, ssp:K, async"}},
      {{"worker", "--sync=ssp:3", "--staleness=2"},
       {"--sync=ssp:3 and --staleness=2 differ"}},
      {{"worker", "--sync=bsp", "--staleness=2"},
       {"--staleness is for --sync=ssp, not for bsp"}},
      {{"worker", "--staleness=2"},
       {"--staleness is for --sync=ssp, not for bsp"}},
      {{"worker", "--mode=ring", "--sync=async"},
       {"--mode=ring is synchronous", "--sync=async"}},
      {{"worker", "--mode=ring", "--backup-workers=1"},
       {"--backup-workers is for --mode=ps --sync=bsp, not for --mode=ring"}},
      {{"worker", "--workers=2", "--backup-workers=2"},
       {"--backup-workers=2 of 2 workers", "from 0 to 1"}},
      {{"worker", "--staleness-lr"},
       {"--staleness-lr is for --sync=ssp and async, not for --sync=bsp"}},
      {{"worker", "--mode=ring", "--delay-compensation=1"},
       {"--delay-compensation is for --sync=ssp and async"}},
      {{"worker", "--record=/tmp/x"}, {"--record is for --sync=ssp and async"}},
      {{"worker", "--sync=async", "--local-steps=2"},
       {"--local-steps averages", "not for --sync=async"}},
      {{"worker", "--local-steps=4", "--checkpoint-every=6",
        "--checkpoint-dir=/tmp/x"},
       {"--checkpoint-every=6 is not a multiple of --local-steps=4"}},
      {{"worker", "--resume"}, {"--resume needs --checkpoint-dir"}},
      {{"worker", "--autoresume"}, {"--autoresume needs --checkpoint-dir"}},
      {{"worker", "--resume", "--autoresume", "--checkpoint-dir=/tmp/x"},
       {"--resume", "--autoresume", "choose one"}},
      {{"worker", "--checkpoint-every=5"},
       {"--checkpoint-every needs --checkpoint-dir"}},
      {{"worker", "--checkpoint-keep=5"},
       {"--checkpoint-keep is for a job with --checkpoint-dir"}},
      {{"worker", "--optimizer=adam", "--momentum=0.9"},
       {"--momentum is for --optimizer=sgd, momentum and nesterov"}},
      {{"worker", "--beta1=0.5"},
       {"--beta1 is for --optimizer=adam and adamw"}},
      {{"worker", "--lr-schedule=cosine", "--lr-gamma=0.5"},
       {"--lr-gamma is for --lr-schedule=step"}},
      {{"worker", "--steps=5", "--epochs=2"}, {"--steps", "--epochs"}},
      {{"launch", "--mode=ring", "--servers=1"}, {"--servers", "ring"}},
      {{"launch", "--", "--mode=ring"}, {"--mode", "--"}},
  };
  for (const WrongUse& use : kWrong) ExpectUsageError(use);
}

TEST(WrongFlag, OfLaunchAndCompareIsNamedWithItsRange) {
  const WrongUse kWrong[] = {
      {{"launch", "--wrokers=2"}, {"--wrokers=2"}},
      {{"launch", "--workers=0"}, {"--workers", "0"}},
      {{"launch", "--servers=x"}, {"--servers", "x"}},
      {{"compare", "--modes=ps-bsp,rign"}, {"rign"}},
      {{"compare", "--modes=ps-ssp:-1"}, {"ps-ssp:-1"}},
      {{"compare", "--epochs=0"}, {"--epochs", "0"}},
      {{"compare", "--lr=-1"}, {"--lr", "-1"}},
      {{"compare", "--", "--workers=2"}, {"--workers"}},
  };
  for (const WrongUse& use : kWrong) ExpectUsageError(use);
}

TEST(WrongFlag, BehindTheDashesEndsTheJobWithTheWorkersLine) {
  const Ran ran = RunProcess({PsringBinary(), "launch", "--mode=ring",
                              "--workers=1", "--", "--epoch=2"},
                             Soon());
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("worker 0 (pid "));
  EXPECT_THAT(LastLine(ran.output), HasSubstr("--epoch=2"));
}

TEST(WrongName, OfAModelOrDataSetIsNamedWithThoseThatExist) {
  const Flags alone = {"worker", "--mode=ring", "--workers=1", "--threads=1"};
  WrongUse model = {alone, {"lennet", "lenet", "mlp", "resnet18"}};
  model.argv.insert(model.argv.end(),
                    {"--model=lennet", "--data=digits:train=8,test=8"});
  ExpectUsageError(model);
  WrongUse data = {alone, {"minst", "mnist:DIR", "digits"}};
  data.argv.push_back("--data=minst:/tmp");
  ExpectUsageError(data);
}

// Before the first step, not at the end of the first epoch.
TEST(WrongBatch, TooFewImagesForBatchNormAreRefusedWithTheRemedy) {
  Flags alone = {
      WorkerBinary(),     "--mode=ring",    "--workers=1",
      "--threads=1",      "--device=cpu",   "--data=digits:train=9,test=8",
      "--model=resnet18", "--batch-size=4", "--epochs=1"};
  const Ran ran = RunProcess(alone, Soon());
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_THAT(LastLine(ran.output),
              AllOf(HasSubstr("resnet18's batch norm"),
                    HasSubstr("has 1 image"), HasSubstr("--drop-last")));
  alone.push_back("--drop-last");
  const Ran dropped = RunProcess(alone, Soon());
  EXPECT_EQ(dropped.code, 0) << dropped.output;
  EXPECT_THAT(dropped.output, HasSubstr("epoch 1 step 2/2"));
}

TEST(WrongDevice, AGpuThatIsNotThereIsRefusedWithWhatIsMissing) {
  const auto cuda = FindCuda();
  if (cuda.has_value() && cuda->num_devices > 0) GTEST_SKIP() << "has a GPU";
  Flags alone = {WorkerBinary(), "--mode=ring", "--workers=1", "--threads=1",
                 "--data=digits:train=8,test=8"};
  Flags gpu = alone;
  gpu.push_back("--device=cuda");
  const Ran device = RunProcess(gpu, Soon());
  EXPECT_EQ(device.code, 1) << device.output;
  EXPECT_THAT(LastLine(device.output),
              AllOf(HasSubstr("--device=cuda: "),
                    AnyOf(HasSubstr("built without CUDA"),
                          HasSubstr("no CUDA driver"), HasSubstr("no GPU"))));
  alone.push_back("--ring-backend=nccl");
  const Ran backend = RunProcess(alone, Soon());
  EXPECT_NE(backend.code, 0);
  EXPECT_THAT(LastLine(backend.output),
              HasSubstr("--ring-backend=nccl needs a GPU"));
}

// One worker alone, on what a test has made of a tiny MNIST.
class WrongData : public ::testing::Test {
 protected:
  WrongData() { testing::WriteTinyMnist(folder_); }

  std::string Path(const std::string& name) { return folder_ + "/" + name; }

  void ExpectError(const Flags& said) {
    const Ran ran =
        RunProcess({WorkerBinary(), "--mode=ring", "--workers=1", "--threads=1",
                    "--model=mlp:6-10", "--steps=1", "--data=mnist:" + folder_},
                   Soon());
    EXPECT_GT(ran.code, 0) << ran.output;
    EXPECT_LT(ran.code, 128) << ran.output;
    for (const std::string& part : said) {
      EXPECT_THAT(LastLine(ran.output), HasSubstr(part));
    }
    EXPECT_THAT(ran.output, Not(HasSubstr("trains")));
  }

  const std::string folder_ = testing::TestDirectory();
};

TEST_F(WrongData, MissingFileIsNamed) {
  std::filesystem::remove(Path("t10k-labels-idx1-ubyte"));
  ExpectError({"no data file", Path("t10k-labels-idx1-ubyte"), ".gz"});
}

TEST_F(WrongData, TruncatedFileIsNamedWithItsSizes) {
  const std::string path = Path("train-images-idx3-ubyte");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  ExpectError({path, "promises 3 items of 6 bytes, but 17 bytes follow",
               "download it again"});
}

TEST_F(WrongData, TruncatedHeaderIsNamed) {
  const std::string path = Path("train-labels-idx1-ubyte");
  std::filesystem::resize_file(path, 5);
  ExpectError({path, "holds 5 bytes", "Download the file again"});
}

TEST_F(WrongData, WrongMagicIsNamedWithTheRightOne) {
  testing::WriteFile(Path("train-images-idx3-ubyte"),
                     testing::Idx(0x801, {3, 2, 3}, std::string(18, '\0')));
  ExpectError({Path("train-images-idx3-ubyte"), "magic number 0x00000801",
               "expected 0x00000803", "right file?"});
}

TEST_F(WrongData, ImagesAndLabelsThatDifferInNumberAreBothNamed) {
  testing::WriteFile(Path("train-labels-idx1-ubyte"),
                     testing::Idx(0x801, {2}, std::string("\1\2", 2)));
  ExpectError({Path("train-images-idx3-ubyte"), "3 images",
               Path("train-labels-idx1-ubyte"), "2 labels"});
}

TEST_F(WrongData, EndsALaunchedJob) {
  const Ran ran = RunProcess(
      {PsringBinary(), "launch", "--workers=2", "--", "--data=mnist:/nowhere"},
      Soon());
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(LastLine(ran.output), HasSubstr("/nowhere/train-images"));
}

}  // namespace
}  // namespace psring
