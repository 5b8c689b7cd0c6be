#include "collectives/shared_chunks.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "collectives/message.h"

namespace psring {
namespace {

class SharedChunksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto own = SharedChunks::Create();
    ASSERT_TRUE(own.ok()) << own.status();
    own_ = *std::move(own);
    auto peer = PeerChunks::Map(own_->address());
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *std::move(peer);
  }

  std::unique_ptr<SharedChunks> own_;
  std::unique_ptr<PeerChunks> peer_;
};

TEST_F(SharedChunksTest, HoldEachChunkUntilItsFrameIsGone) {
  const std::string large(kSharedChunkBytes, 'l');
  const int slot = own_->Put(large);
  const int other = own_->Put("small");
  ASSERT_NE(slot, other);
  {
    auto frame = peer_->Take(slot, large.size());
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_TRUE(frame->view() == large);
    EXPECT_EQ(peer_->Take(other, 5)->view(), "small");  // and it is gone
    EXPECT_EQ(own_->Put("more"), other);
    EXPECT_TRUE(frame->view() == large);
  }
  EXPECT_EQ(own_->Put("again"), slot);
}

TEST_F(SharedChunksTest, AreReadByFramesThatOutliveBothSides) {
  const int slot = own_->Put("bytes");
  auto frame = peer_->Take(slot, 5);
  own_.reset();
  peer_.reset();
  EXPECT_EQ(frame->view(), "bytes");
}

TEST_F(SharedChunksTest, AreRefusedWhereNoSlotIsFree) {
  for (int i = 0; i < kNumChunkSlots; ++i) EXPECT_EQ(own_->Put("x"), i);
  EXPECT_EQ(own_->Put("x"), -1);
  peer_->Take(7, 1).IgnoreError();
  EXPECT_EQ(own_->Put("x"), 7);
}

TEST_F(SharedChunksTest, AreOfASlotAndASizeThatThereIs) {
  struct {
    int slot;
    int64_t size;
  } wrong[] = {{-1, 1},
               {std::numeric_limits<int>::min(), 1},
               {kNumChunkSlots, 1},
               {0, 0},
               {0, kSharedChunkBytes + 1}};
  for (const auto& [slot, size] : wrong) {
    EXPECT_EQ(peer_->Take(slot, size).status().code(),
              absl::StatusCode::kInvalidArgument)
        << slot << " " << size;
  }
}

TEST_F(SharedChunksTest, AreNotThoseOfAnotherMemory) {
  proto::SharedMemory other_number = own_->address();
  other_number.set_nonce(other_number.nonce() + 1);
  proto::SharedMemory other_size = own_->address();
  other_size.set_size_bytes(other_size.size_bytes() - 1);
  for (const proto::SharedMemory& address : {other_number, other_size}) {
    EXPECT_EQ(PeerChunks::Map(address).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace psring
