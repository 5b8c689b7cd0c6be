// Gradient compression: --compress=none|fp16|bf16|int8|onebit|topk:FRACTION.
//
// There is one rounding point, the same in every topology: before a worker
// submits a bucket, Quantise replaces its gradients, in place, by float32
// values that the code represents exactly, and keeps what was lost for the next
// step (error feedback: Seide et al. 2014; Karimireddy et al. 2019). All that
// follows computes with these values in float32: sums keep their canonical
// order, and sync ps and the ring end with the same bits. Where they travel in
// messages they are encoded, which loses nothing more; where memory is shared
// they lie as they are. What returns, parameters or the mean, is float32.
//
//            a value becomes                                  bytes of n values
//   fp16     the nearest half                                 2n
//   bf16     the nearest bfloat16                             2n
//   int8     q * 2^e, |q| <= 127; one e a block of 256        n + 1 a block
//   onebit   the mean of its block's values of its sign;      n/8 + 8 a block
//            blocks of 1024
//   topk:F   itself, if it is among the F * n largest of its  8 a value
//            bucket, else 0
//
// Blocks are cut from each tensor's beginning, so that tensors, whose gradients
// differ by orders of magnitude, share none; a message holds a head of its own
// for each block that it has a part of. The head can be computed from any part
// of a quantised block: that is why int8 scales by powers of two (as the OCP
// Microscaling formats do), and why encoding needs no state.
//
//   fp16, bf16 = n * 2OCTET
//   int8       = *(e n*OCTET)               ; e: as a float's exponent, 1..248,
//                                           ; or 255: not finite
//   onebit     = *(low high n/8*OCTET)      ; float32 each; a set bit is low,
//                                           ; the first one the lowest
//   topk       = *(index value)             ; uint32 from the range's begin,
//                                           ; ascending; float32
//
// Pure: no I/O, and of a codec's own only what follows from the layout.
#ifndef PSRING_COMMON_OPTIM_COMPRESSION_H_
#define PSRING_COMMON_OPTIM_COMPRESSION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

struct Compression {
  enum class Kind { kNone, kFp16, kBf16, kInt8, kOneBit, kTopK };

  Kind kind = Kind::kNone;
  double fraction = 0;  // of kTopK; above 0, at most 0.5

  bool none() const { return kind == Kind::kNone; }
};

// Of JobSpec.compress; "" is "none". INVALID_ARGUMENT names the flag and what
// it may be.
absl::StatusOr<Compression> ParseCompression(absl::string_view text);

// Of a gradient in messages, on average: blocks count as full, and topk as if
// it kept just its fraction.
double BytesPerValue(const Compression& compression);

class GradientCodec {
 public:
  // `compression` is not none.
  GradientCodec(const Compression& compression, const Layout& layout);

  // The rounding point; `bucket` is one of the layout's. Both pointers are to
  // its first element. Gaps behind tensors stay 0.
  void Quantise(Range bucket, float* gradients, float* residual) const;

  // Of a range within one bucket, its bounds multiples of kAlignElements.
  // `values`, quantised, are those of the range. The size is a function of the
  // range alone, but for topk, which sends what is not 0.
  int64_t EncodedBytes(Range range, const float* values) const;
  void Encode(Range range, const float* values, void* out) const;

  // Fills `out`, range.size() floats of any alignment, with the values that
  // were encoded. INVALID_ARGUMENT says what no encoder would have written.
  absl::Status Decode(Range range, absl::string_view bytes, void* out) const;

 private:
  struct Block {
    Range range;       // with the gap behind a tensor
    int64_t used_end;  // without
  };

  // Calls use(part, used) for every block that `range` has a part of; the first
  // `used` elements of the part belong to a tensor.
  template <typename Use>
  void ForEachPart(Range range, Use use) const;

  absl::Status DecodeInt8Parts(Range range, const char* bytes, void* out) const;
  void DecodeOneBitParts(Range range, const char* bytes, void* out) const;

  const Compression compression_;
  std::vector<Block> blocks_;  // ascending; none where the kind needs none
};

// The codec of a job's gradients; none: they travel as float32. Errors are
// ParseCompression's.
absl::StatusOr<std::optional<GradientCodec>> CodecOf(const proto::JobSpec& spec,
                                                     const Layout& layout);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_COMPRESSION_H_
