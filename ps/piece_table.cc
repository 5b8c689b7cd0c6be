#include "ps/piece_table.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {

using proto::WireHeader;

PieceTable::PieceTable(const Layout& layout, absl::Span<const Range> shard)
    : pieces_(PiecesOfShard(layout, shard, kPieceElements)) {
  for (int i = 0; i < size(); ++i) {
    at_[pieces_[i].range.begin] = i;
    of_bucket_[pieces_[i].bucket].push_back(i);
  }
}

std::vector<int> PieceTable::buckets() const {
  std::vector<int> buckets;
  for (const auto& [bucket, pieces] : of_bucket_) buckets.push_back(bucket);
  return buckets;
}

absl::StatusOr<int> PieceTable::Find(const WireHeader& header,
                                     WireHeader::DType dtype) const {
  const auto found = at_.find(static_cast<int64_t>(header.offset()));
  const std::string what =
      absl::StrCat("elements from ", header.offset(), " of bucket ",
                   header.bucket(), " at step ", header.step());
  if (found == at_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": no piece of this shard begins there"));
  }
  const Piece& piece = pieces_[found->second];
  const bool has_payload = header.kind() != WireHeader::PULL;
  if (header.bucket() != static_cast<uint32_t>(piece.bucket) ||
      header.dtype() != dtype ||
      (has_payload &&
       header.num_elements() != static_cast<uint64_t>(piece.range.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": wrong bucket, type (", WireHeader::DType_Name(header.dtype()),
        ") or size (", header.num_elements(), " elements where the piece has ",
        piece.range.size(), ")"));
  }
  return found->second;
}

}  // namespace psring
