// The pieces (layout.h) of one shard, and which of them a message or a bucket
// names. Fixed after construction.
#ifndef PSRING_PS_PIECE_TABLE_H_
#define PSRING_PS_PIECE_TABLE_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "protos/wire.pb.h"

namespace psring {

class PieceTable {
 public:
  // `shard`: its ranges, ascending.
  PieceTable(const Layout& layout, absl::Span<const Range> shard);

  int size() const { return static_cast<int>(pieces_.size()); }
  const Piece& operator[](int index) const { return pieces_[index]; }

  // The buckets of which the shard has a part, and their pieces.
  std::vector<int> buckets() const;
  const std::vector<int>& of_bucket(int bucket) const {
    return of_bucket_.at(bucket);
  }

  // A message names exactly one of the pieces, and has a payload of type
  // `dtype`, or it is wrong.
  absl::StatusOr<int> Find(const proto::WireHeader& header,
                           proto::WireHeader::DType dtype) const;

 private:
  std::vector<Piece> pieces_;
  std::map<int64_t, int> at_;  // first element -> index
  std::map<int, std::vector<int>> of_bucket_;
};

}  // namespace psring

#endif  // PSRING_PS_PIECE_TABLE_H_
