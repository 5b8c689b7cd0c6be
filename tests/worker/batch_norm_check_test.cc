#include "worker/batch_norm_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/status/status.h"
#include "protos/cluster.pb.h"
#include "worker/models/model.h"

namespace psring {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BatchNormCheckTest : public testing::Test {
 protected:
  BatchNormCheckTest() {
    spec_.set_model("resnet18");
    spec_.set_batch_size(16);
    // Its last batch norms see one position of such an image.
    model_ = *CreateModel(
        "resnet18", {.channels = 3, .height = 8, .width = 8, .num_classes = 10},
        /*seed=*/0);
  }

  absl::Status Check(int64_t smallest_batch, int num_workers = 1) {
    return CheckBatchNorm(*model_, spec_, smallest_batch, num_workers,
                          /*warns=*/true);
  }

  proto::JobSpec spec_;
  std::unique_ptr<Classifier> model_;
};

TEST_F(BatchNormCheckTest, RefusesTheMeanOfOneValue) {
  EXPECT_TRUE(Check(16).ok());
  EXPECT_TRUE(Check(2).ok());  // with a warning
  const absl::Status last = Check(1);
  EXPECT_EQ(last.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(last.message(),
              AllOf(HasSubstr("resnet18's batch norm takes the mean of 1 value "
                              "where a batch has 1 image, as an epoch's last"),
                    HasSubstr("--drop-last")));
  spec_.set_batch_size(1);
  EXPECT_THAT(Check(1).message(), HasSubstr("Choose a larger --batch-size"));
}

TEST_F(BatchNormCheckTest, CountsTheValuesOfAllWorkersThatShareTheirs) {
  EXPECT_FALSE(Check(1, 4).ok());
  spec_.set_sync_batch_norm(true);
  EXPECT_TRUE(Check(1, 4).ok());
}

TEST_F(BatchNormCheckTest, AModelWithoutBatchNormIsRightAlways) {
  model_ = *CreateModel(
      "lenet", {.channels = 1, .height = 28, .width = 28, .num_classes = 10},
      /*seed=*/0);
  EXPECT_TRUE(Check(1).ok());
}

}  // namespace
}  // namespace psring
