#include "worker/torch/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/captured_log.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceWish Wish(const char* text) {
  const auto wish = ParseDevice(text);
  EXPECT_TRUE(wish.ok()) << wish.status();
  return *wish;
}

TEST(ParseDevice, KnowsTheForms) {
  EXPECT_EQ(Wish("auto").kind, DeviceWish::Kind::kAuto);
  EXPECT_EQ(Wish("cpu").kind, DeviceWish::Kind::kCpu);
  EXPECT_EQ(Wish("cuda").kind, DeviceWish::Kind::kCuda);
  EXPECT_EQ(Wish("cuda").index, -1);
  EXPECT_EQ(Wish("cuda:3").index, 3);
}

TEST(ParseDevice, NamesWhatItDoesNotKnow) {
  for (const char* text : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda1", ""}) {
    const absl::Status status = ParseDevice(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--device"), HasSubstr("cuda:INDEX")));
  }
}

TEST(DecideOnGpu, LeavesAGpuUnusedOnlyWithAWarning) {
  const auto no_cuda = absl::FailedPreconditionError("libtorch has no CUDA");
  CapturedLog log;
  const auto built_without = absl::UnimplementedError("built without CUDA");
  EXPECT_FALSE(*DecideOnGpu(Wish("cpu"), no_cuda, true));
  EXPECT_FALSE(
      *DecideOnGpu(Wish("auto"), absl::UnavailableError("no GPU"), true));
  EXPECT_FALSE(*DecideOnGpu(Wish("auto"), built_without, false));
  EXPECT_EQ(log.Count("GPU"), 0);
  EXPECT_FALSE(*DecideOnGpu(Wish("auto"), no_cuda, true));
  EXPECT_EQ(log.Count("although this host has a GPU: libtorch has no CUDA"), 1);
  EXPECT_FALSE(*DecideOnGpu(Wish("auto"), built_without, true));
  EXPECT_EQ(log.Count("although this host has a GPU: built without CUDA"), 1);
  EXPECT_THAT(
      std::string(DecideOnGpu(Wish("cuda"), no_cuda, true).status().message()),
      HasSubstr("--device=cuda: libtorch has no CUDA"));
  EXPECT_TRUE(*DecideOnGpu(Wish("auto"), absl::OkStatus(), true));
}

TEST(ChooseGpu, TakesThePlaceUnlessTheUserSays) {
  EXPECT_EQ(*ChooseGpu(Wish("auto"), {1, 2}, 2), 1);
  EXPECT_EQ(*ChooseGpu(Wish("cuda:0"), {1, 2}, 2), 0);
}

// Which may be another one for each worker: a launcher's tasks see their own.
TEST(ChooseGpu, TakesTurnsWhereWorkersOutnumberTheGpusThatItSees) {
  EXPECT_EQ(*ChooseGpu(Wish("auto"), {3, 8}, 1), 0);
  EXPECT_EQ(*ChooseGpu(Wish("auto"), {2, 4}, 2), 0);
  EXPECT_EQ(*ChooseGpu(Wish("cuda"), {3, 4}, 2), 1);
}

TEST(ChooseGpu, RefusesAnIndexThatIsNotThere) {
  const absl::Status status = ChooseGpu(Wish("cuda:2"), {0, 1}, 2).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--device=cuda:2"), HasSubstr("2 GPUs")));
}

TEST(CheckNotShared, NamesBothWorkersAndTheGpu) {
  const std::vector<std::string> gpus = {"host a, 01", "host b, 01",
                                         "host a, 01"};
  EXPECT_THAT(
      std::string(CheckNotShared(gpus, false).message()),
      AllOf(HasSubstr("workers 0 and 2"), HasSubstr("host a, 01"),
            HasSubstr("--allow-shared-gpu"), HasSubstr("--device=cpu")));
  EXPECT_TRUE(CheckNotShared(gpus, true).ok());
  EXPECT_TRUE(CheckNotShared({"host a, 01", "host b, 01"}, false).ok());
}

// They have uuids of their own, and one bus id, by which NCCL goes.
TEST(ShareAGpu, IsSaidOfSlicesOfOneGpu) {
  proto::Welcome job;
  for (int r = 0; r < 2; ++r) job.add_workers()->set_host("a");
  const std::string first = GpuText("a", "0000:3b:00.0", "MIG-1");
  const std::string second = GpuText("a", "0000:3b:00.0", "MIG-2");
  EXPECT_TRUE(CheckNotShared({first, second}, /*may_share=*/false).ok());
  EXPECT_TRUE(ShareAGpu({first, second}, job));
  EXPECT_TRUE(ShareAGpu({first, first}, job));
  EXPECT_FALSE(ShareAGpu({first, GpuText("a", "0000:5e:00.0", "MIG-1")}, job));
  job.mutable_workers(1)->set_boot(7);  // another machine of that name
  EXPECT_FALSE(ShareAGpu({first, second}, job));
}

}  // namespace
}  // namespace psring
