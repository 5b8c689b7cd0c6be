#include "ps/piece_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace psring {
namespace {

using proto::WireHeader;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two buckets, the last tensor's first: 0 is [70000, 70064), 1 is [0, 70000).
Layout TwoBuckets() {
  std::vector<proto::TensorShape> tensors(2);
  tensors[0].set_name("large");
  tensors[0].add_shape(70000);
  tensors[1].set_name("small");
  tensors[1].add_shape(60);
  return *Layout::Create(tensors, 1);
}

WireHeader HeaderOf(const Piece& piece,
                    WireHeader::Kind kind = WireHeader::PUSH) {
  WireHeader header;
  header.set_kind(kind);
  header.set_step(812);
  header.set_bucket(static_cast<uint32_t>(piece.bucket));
  header.set_offset(static_cast<uint64_t>(piece.range.begin));
  header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  header.set_dtype(WireHeader::FLOAT32);
  return header;
}

TEST(PieceTable, CutsEveryBucketOfTheShardIntoPieces) {
  const PieceTable pieces(TwoBuckets(), {{0, 70064}});
  ASSERT_EQ(pieces.size(), 4);
  EXPECT_EQ(pieces[0], (Piece{0, {70000, 70064}}));
  EXPECT_EQ(pieces[1], (Piece{1, {0, 32768}}));
  EXPECT_EQ(pieces[2], (Piece{1, {32768, 65536}}));
  EXPECT_EQ(pieces[3], (Piece{1, {65536, 70000}}));
  EXPECT_THAT(pieces.buckets(), ElementsAre(0, 1));
  EXPECT_THAT(pieces.of_bucket(0), ElementsAre(0));
  EXPECT_THAT(pieces.of_bucket(1), ElementsAre(1, 2, 3));
}

TEST(PieceTable, HasOnlyWhatTheShardOwns) {
  const PieceTable pieces(TwoBuckets(), {{160, 320}});
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_EQ(pieces[0], (Piece{1, {160, 320}}));
  EXPECT_THAT(pieces.buckets(), ElementsAre(1));
  const PieceTable none(TwoBuckets(), {});
  EXPECT_EQ(none.size(), 0);
  EXPECT_THAT(none.buckets(), IsEmpty());
}

TEST(PieceTable, OfSeveralRangesHasTheLastFirst) {
  const PieceTable pieces(TwoBuckets(), {{16, 32}, {64, 80}, {70016, 70032}});
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_EQ(pieces[0], (Piece{0, {70016, 70032}}));
  EXPECT_EQ(pieces[1], (Piece{1, {16, 32}}));
  EXPECT_EQ(pieces[2], (Piece{1, {64, 80}}));
}

TEST(PieceTable, FindsThePieceThatAMessageNames) {
  const PieceTable pieces(TwoBuckets(), {{0, 70064}});
  for (int i = 0; i < pieces.size(); ++i) {
    const auto found = pieces.Find(HeaderOf(pieces[i]), WireHeader::FLOAT32);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, i);
    WireHeader pull = HeaderOf(pieces[i], WireHeader::PULL);
    pull.clear_num_elements();  // it has no payload
    const auto pulled = pieces.Find(pull, WireHeader::FLOAT32);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(*pulled, i);
  }
}

TEST(PieceTable, RefusesWhatNamesNoPieceOfTheShard) {
  const PieceTable pieces(TwoBuckets(), {{0, 65536}});
  for (const uint64_t offset :
       {uint64_t{1}, uint64_t{16}, uint64_t{65536}, uint64_t{70000},
        uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    WireHeader header = HeaderOf(pieces[0]);
    header.set_offset(offset);
    const absl::Status status =
        pieces.Find(header, WireHeader::FLOAT32).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << offset;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("bucket 1 at step 812: no piece of this shard "));
  }
}

TEST(PieceTable, RefusesAnotherBucketTypeOrSize) {
  const PieceTable pieces(TwoBuckets(), {{0, 70064}});
  std::vector<WireHeader> wrong(7, HeaderOf(pieces[1]));
  wrong[0].set_bucket(0);
  wrong[1].set_bucket(std::numeric_limits<uint32_t>::max());
  wrong[2].set_dtype(WireHeader::BYTES);
  wrong[3].set_dtype(WireHeader::ENCODED);
  wrong[4].set_num_elements(0);
  wrong[5].set_num_elements(32767);
  wrong[6].set_num_elements((uint64_t{1} << 32) + 32768);
  for (const WireHeader& header : wrong) {
    const absl::Status status =
        pieces.Find(header, WireHeader::FLOAT32).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << header.ShortDebugString();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("wrong bucket, type (" +
                          WireHeader::DType_Name(header.dtype())));
  }
  WireHeader pull = HeaderOf(pieces[1], WireHeader::PULL);
  pull.set_bucket(0);
  EXPECT_FALSE(pieces.Find(pull, WireHeader::FLOAT32).ok());
}

}  // namespace
}  // namespace psring
