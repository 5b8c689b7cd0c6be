#include "common/model/layout.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fnv.h"

namespace psring {
namespace {

// Models end below this; products of their sizes then fit in an int64_t.
constexpr int64_t kMaxElements = int64_t{1} << 40;

// Smaller ones would take little less time, and cost more messages.
constexpr int64_t kSmallestHalfBytes = 1 << 20;

int64_t AlignUp(int64_t n) {
  return (n + kAlignElements - 1) / kAlignElements * kAlignElements;
}

std::string Describe(const proto::TensorShape& tensor) {
  return absl::StrCat("tensor ", tensor.name(), " of shape [",
                      absl::StrJoin(tensor.shape(), ","), "]");
}

absl::StatusOr<int64_t> CountElements(const proto::TensorShape& tensor) {
  int64_t count = 1;
  bool too_large = false;
  bool empty = false;
  for (const int64_t dimension : tensor.shape()) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(tensor), " has a negative dimension"));
    }
    empty |= dimension == 0;
    too_large |= __builtin_mul_overflow(count, dimension, &count);
    too_large |= count >= kMaxElements;
  }
  if (empty) return 0;
  if (!too_large) return count;
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(tensor), " has 2^40 elements or more"));
}

}  // namespace

Range Intersect(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

absl::StatusOr<Layout> Layout::Create(std::vector<proto::TensorShape> tensors,
                                      int64_t bucket_bytes) {
  if (bucket_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a bucket of ", bucket_bytes, " bytes; it must be 1 or more"));
  }
  Layout layout;
  layout.tensors_ = std::move(tensors);
  if (absl::Status status = layout.PlaceTensors(); !status.ok()) return status;
  layout.CutBuckets(bucket_bytes);
  layout.ComputeDigest();
  return layout;
}

absl::Status Layout::PlaceTensors() {
  if (tensors_.empty()) {
    return absl::InvalidArgumentError("the model has no parameters");
  }
  std::unordered_set<std::string> names;
  for (const proto::TensorShape& tensor : tensors_) {
    if (!names.insert(tensor.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors are named ", tensor.name()));
    }
    absl::StatusOr<int64_t> count = CountElements(tensor);
    if (!count.ok()) return count.status();
    tensor_ranges_.push_back({num_elements_, num_elements_ + *count});
    num_parameters_ += *count;
    num_elements_ += AlignUp(*count);
    if (num_elements_ >= kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model has 2^40 elements or more up to tensor ", tensor.name()));
    }
  }
  return absl::OkStatus();
}

void Layout::CutBuckets(int64_t bucket_bytes) {
  bucket_of_tensor_.resize(tensors_.size());
  const auto bytes_of = [](int64_t elements) {
    return elements * static_cast<int64_t>(sizeof(float));
  };
  int64_t end = num_elements_;
  for (int i = static_cast<int>(tensors_.size()) - 1; i >= 0; --i) {
    bucket_of_tensor_[i] = num_buckets();
    const int64_t begin = tensor_ranges_[i].begin;
    // Nothing lies before element 0: tensors without elements join the last
    // bucket rather than make an empty one.
    const bool full = begin > 0 && bytes_of(end - begin) >=
                                       BucketLimit(bytes_of(end), bucket_bytes);
    if (full || i == 0) {
      buckets_.push_back({begin, end});
      end = begin;
    }
  }
}

void Layout::ComputeDigest() {
  Fnv digest;
  const auto add = [&](int64_t n) { digest.Add(static_cast<uint64_t>(n)); };
  for (const proto::TensorShape& tensor : tensors_) {
    add(static_cast<int64_t>(tensor.name().size()));
    digest.Add(tensor.name());
    add(tensor.shape_size());
    for (const int64_t dimension : tensor.shape()) add(dimension);
  }
  for (const Range& bucket : buckets_) {
    add(bucket.begin);
    add(bucket.end);
  }
  digest_ = digest.value();
}

int64_t BucketLimit(int64_t left_bytes, int64_t bucket_bytes) {
  const int64_t half = left_bytes / 2;
  return half < kSmallestHalfBytes ? bucket_bytes
                                   : std::min(bucket_bytes, half);
}

Range NearEqualPart(Range whole, int n, int c) {
  const int64_t blocks = AlignUp(whole.size()) / kAlignElements;
  const auto bound = [&](int64_t part) {
    const int64_t block = blocks / n * part + std::min(part, blocks % n);
    return std::min(whole.end, whole.begin + block * kAlignElements);
  };
  return {bound(c), bound(c + 1)};
}

std::vector<Piece> PiecesOfShard(const Layout& layout,
                                 absl::Span<const Range> shard,
                                 int64_t max_elements) {
  std::vector<Piece> pieces;
  for (int b = 0; b < layout.num_buckets(); ++b) {
    for (const Range& range : shard) {
      const Range owned = Intersect(layout.bucket(b), range);
      for (int64_t begin = owned.begin; begin < owned.end;
           begin += max_elements) {
        const int64_t end = std::min(owned.end, begin + max_elements);
        pieces.push_back({b, {begin, end}});
      }
    }
  }
  return pieces;
}

}  // namespace psring
