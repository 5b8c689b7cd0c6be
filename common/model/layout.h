// Pure arithmetic: tensors -> buckets -> slices -> shards -> pieces.
//
// All parameters of a model live in one flat float32 allocation, tensor after
// tensor in registration order, each tensor's start aligned to 64 bytes; the
// gap behind a tensor holds zeros and stays zero. Buckets cut that allocation
// into runs of whole tensors in backward order: bucket 0 holds the last
// tensors, whose gradients are ready first. Every process derives the same
// layout from the same tensor list.
#ifndef PSRING_COMMON_MODEL_LAYOUT_H_
#define PSRING_COMMON_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protos/cluster.pb.h"

namespace psring {

// 64 bytes of float32: every bound below is a multiple of it.
inline constexpr int64_t kAlignElements = 16;

// Elements [begin, end) of the flat model.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Range& a, const Range& b) = default;
};

// The elements in both; an empty range (begin == end) where there are none.
Range Intersect(Range a, Range b);

// The most groups of tensors with hyperparameters of their own.
inline constexpr int kMaxGroups = 64;

class Layout {
 public:
  // Buckets are closed as soon as they hold at least BucketLimit(); a tensor is
  // never split over buckets. Errors: no tensor, a negative dimension, a
  // name given twice, 2^40 elements or more, bucket_bytes < 1. Scalars (shape
  // []) and tensors without elements are legal.
  static absl::StatusOr<Layout> Create(std::vector<proto::TensorShape> tensors,
                                       int64_t bucket_bytes);

  // Of the flat allocation, gaps included; a multiple of kAlignElements.
  int64_t num_elements() const { return num_elements_; }
  // Without the gaps.
  int64_t num_parameters() const { return num_parameters_; }

  const std::vector<proto::TensorShape>& tensors() const { return tensors_; }
  // Where tensor i lies, without the gap behind it.
  Range tensor(int i) const { return tensor_ranges_[i]; }

  int num_buckets() const { return static_cast<int>(buckets_.size()); }
  // Gaps included; adjacent buckets touch.
  Range bucket(int b) const { return buckets_[b]; }
  int bucket_of_tensor(int i) const { return bucket_of_tensor_[i]; }

  // Equal for equal names, shapes, order and buckets.
  uint64_t digest() const { return digest_; }

 private:
  Layout() = default;

  absl::Status PlaceTensors();
  void CutBuckets(int64_t bucket_bytes);
  void ComputeDigest();

  std::vector<proto::TensorShape> tensors_;
  std::vector<Range> tensor_ranges_;
  std::vector<int> bucket_of_tensor_;
  std::vector<Range> buckets_;
  int64_t num_elements_ = 0;
  int64_t num_parameters_ = 0;
  uint64_t digest_ = 0;
};

// The c-th of n near-equal ranges of `whole`, its bounds aligned relative to
// whole.begin; the last bound is whole.end. Used for a bucket's slices and for
// the servers' parts of it. Some are empty where `whole` is small.
Range NearEqualPart(Range whole, int n, int c);

// A worker's --bucket-mb unless it is given.
inline constexpr int64_t kDefaultBucketBytes = 25 << 20;

// What the next bucket holds at least, where `left_bytes` of the gradients are
// in none yet: `bucket_bytes`, or less where the end is near. When the last
// bucket is ready, backward is over, and nothing hides the time of its
// exchange; so each of the last ones holds half of what is left, down to 1 MiB.
int64_t BucketLimit(int64_t left_bytes, int64_t bucket_bytes);

// The most elements of a piece (128 KiB): small enough that the answers to the
// last pushes, which leave when those have come from everybody, take little
// time, and large enough that the cost of a message is small beside it.
inline constexpr int64_t kPieceElements = 32 * 1024;

// How many pieces a worker's pushes to a shard may be ahead of its answers: 512
// KiB, some 4 ms of a 1 Gbit/s link. More lets workers drift apart; less leaves
// the link idle where a push and its answer take long.
inline constexpr int kWindowPieces = 4;

// While backward runs, a worker looks at answers only when a bucket comes. What
// it pushes meanwhile, at most 16 MiB to a shard, keeps the link busy until
// then. It bounds what a server holds for a worker that is ahead of the others.
inline constexpr int kEarlyWindowPieces = 128;

// The most elements of a ring's segment (256 KiB): large enough that a
// message's cost vanishes, small enough that all hops of a 25 MB bucket are
// busy at once.
inline constexpr int64_t kSegmentElements = 64 * 1024;

// What one push carries: a run of one bucket's elements that one shard owns.
struct Piece {
  int bucket = 0;
  Range range;

  friend bool operator==(const Piece& a, const Piece& b) = default;
};

// The pieces of a shard, whose ranges are ascending, bucket by bucket in
// backward order, each of at most `max_elements` (a positive multiple of
// kAlignElements).
std::vector<Piece> PiecesOfShard(const Layout& layout,
                                 absl::Span<const Range> shard,
                                 int64_t max_elements);

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_LAYOUT_H_
