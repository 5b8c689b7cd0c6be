// A script's model on the host, through real jobs.
#include "python/capi/script_model.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/testing/local_job.h"
#include "tests/testing/test_directory.h"

namespace {

std::atomic<bool> disk_is_slow{false};
std::atomic<int> times_slow{0};

}  // namespace

// In place of the C library's.
extern "C" int fsync(int fd) {
  if (disk_is_slow) {
    ++times_slow;
    absl::SleepFor(absl::Milliseconds(700));
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace psring {
namespace {

constexpr int kWorkers = 2;

class ScriptModelTest : public ::testing::TestWithParam<proto::Mode> {};

// A save may take longer than a step may wait for others.
TEST_P(ScriptModelTest, OthersWaitAsLongAsSomebodySaves) {
  LocalJobOptions options;
  options.spec = SmallSpec(GetParam(), proto::BSP);
  options.num_workers = kWorkers;
  options.num_servers = GetParam() == proto::RING ? 0 : 1;
  const nlohmann::json text = {
      {"id", "script"},
      {"tensors", {{{"name", "t"}, {"shape", {100}}}}},
      {"update", "fused"},
      {"groups", {{{"name", "adam"}, {"lr", 0.05}, {"weight_decay", 0.0}}}},
      {"tensor_groups", {0}}};
  const std::string directory = testing::TestDirectory();
  const auto save = [&](LocalWorker& worker) -> absl::Status {
    const auto parsed = ParseModelOptions(text.dump(), GetParam());
    if (!parsed.ok()) return parsed.status();
    // A call waits for twice as long.
    auto model = ScriptModel::Open(*worker.job, *parsed, SameHost::kAuto,
                                   /*step_timeout=*/absl::Milliseconds(400));
    if (!model.ok()) return model.status();
    absl::Status status = (*model)->Begin(*(*model)->CopySlots({}));
    if (!status.ok()) return status;
    disk_is_slow = true;
    status = (*model)->Save(directory);
    disk_is_slow = false;
    return status.ok() ? (*model)->Close() : status;
  };
  times_slow = 0;
  for (const absl::Status& s : RunLocalJob(options, save)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_GE(times_slow, 2);
}

INSTANTIATE_TEST_SUITE_P(Modes, ScriptModelTest,
                         ::testing::Values(proto::RING,
                                           proto::PARAMETER_SERVER),
                         [](const auto& info) {
                           return info.param == proto::RING ? "ring" : "ps";
                         });

}  // namespace
}  // namespace psring
