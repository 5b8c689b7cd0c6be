#include "common/model/flat_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "tests/testing/tensor_lists.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(FlatBufferTest, IsZeroedAndAligned) {
  for (const int64_t size : {1, 16, 17, 100000}) {
    absl::StatusOr<FlatBuffer> buffer = FlatBuffer::Create(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 4096, 0u);
    EXPECT_THAT(buffer->span(), Each(0.0f));
  }
}

TEST(FlatBufferTest, MovingKeepsTheAddress) {
  FlatBuffer buffer = *FlatBuffer::Create(10);
  const float* address = buffer.data();
  FlatBuffer moved = std::move(buffer);
  FlatBuffer assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), address);
  EXPECT_EQ(assigned.size(), 10);
}

TEST(FlatBufferTest, OfNoElementsIsEmpty) {
  EXPECT_TRUE(FlatBuffer::Create(0)->span().empty());
}

TEST(FlatBufferTest, TooLargeIsAnErrorWithTheSize) {
  for (const int64_t size :
       {int64_t{1} << 60, std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = FlatBuffer::Create(size).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(size)));
  }
  EXPECT_FALSE(FlatBuffer::Create(-1).ok());
}

TEST(FlatModelTest, HoldsTheLayoutTwice) {
  absl::StatusOr<FlatModel> model =
      FlatModel::Create(*Layout::Create(testing::Lenet(), 1));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters.size(), model->layout.num_elements());
  EXPECT_EQ(model->gradients.size(), model->layout.num_elements());
  EXPECT_NE(model->gradients.data(), model->parameters.data());
}

}  // namespace
}  // namespace psring
