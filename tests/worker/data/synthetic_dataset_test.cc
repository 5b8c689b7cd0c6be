#include "worker/data/synthetic_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "worker/data/load_dataset.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(Synthetic, HasTheShapeThatWasAskedFor) {
  const auto data = LoadDataset("synthetic:3x5x7,classes=1000,train=40,test=3");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.shape, (ImageShape{3, 5, 7, 1000}));
  EXPECT_EQ(data->train.size(), 40);
  EXPECT_EQ(data->test.size(), 3);
  EXPECT_EQ(data->train.pixels.size(), 40u * 3 * 5 * 7);
  const auto& labels = data->train.labels;
  EXPECT_GE(*std::min_element(labels.begin(), labels.end()), 0);
  EXPECT_LT(*std::max_element(labels.begin(), labels.end()), 1000);
  EXPECT_GT(*std::max_element(labels.begin(), labels.end()), 10);
}

TEST(Synthetic, IsTheSameEachTime) {
  const auto a = LoadDataset("synthetic:1x4x4");
  const auto b = LoadDataset("synthetic:1x4x4");
  EXPECT_EQ(a->train.pixels, b->train.pixels);
  EXPECT_EQ(a->train.labels, b->train.labels);
  EXPECT_NE(a->train.Image(0), a->train.Image(1));
}

TEST(Synthetic, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"synthetic", "CHANNELSxHEIGHTxWIDTH"},
      {"synthetic:3x224", "'3x224'"},
      {"synthetic:3x0x224", "1 to 4096"},
      {"synthetic:3x224x224,classes=0", "'classes=0'"},
      {"synthetic:3x224x224,samples=5", "'samples=5'"},
      {"synthetic:3x4096x4096,train=100000000", "terabyte"},
  };
  for (const auto& [spec, said] : kWrong) {
    const absl::Status status = LoadDataset(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }
}

}  // namespace
}  // namespace psring
