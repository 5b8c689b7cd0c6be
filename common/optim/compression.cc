#include "common/optim/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/optim/compression_kernels.h"

namespace psring {
namespace {

using Kind = Compression::Kind;

// Heads are as small beside a block as makes no difference: 0.4% of int8, 6% of
// onebit.
constexpr int64_t kInt8Block = 256;
constexpr int64_t kOneBitBlock = 1024;

constexpr int64_t kPairBytes = sizeof(uint32_t) + sizeof(float);

// In a float32 buffer of any alignment.
UnalignedFloat* At(void* data, int64_t offset) {
  return static_cast<UnalignedFloat*>(data) + offset;
}

absl::Status WrongSize(size_t bytes, Range range, int64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "an encoded gradient of ", bytes, " bytes where ", range.size(),
      " elements from ", range.begin, " take ", expected));
}

void EncodePairs(const float* values, int64_t n, char* out) {
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] == 0.0f) continue;
    const auto index = static_cast<uint32_t>(i);
    std::memcpy(out, &index, sizeof(index));
    std::memcpy(out + sizeof(index), &values[i], sizeof(float));
    out += kPairBytes;
  }
}

absl::Status DecodePairs(Range range, absl::string_view bytes, void* out) {
  if (bytes.size() % kPairBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an encoded gradient of ", bytes.size(),
                     " bytes, which is not a multiple of ", kPairBytes));
  }
  std::memset(out, 0, range.size() * sizeof(float));
  int64_t previous = -1;
  for (size_t at = 0; at < bytes.size(); at += kPairBytes) {
    uint32_t index;
    std::memcpy(&index, bytes.data() + at, sizeof(index));
    if (index <= previous || index >= range.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("an encoded gradient with index ", index, " behind ",
                       previous, " in a range of ", range.size(), " elements"));
    }
    std::memcpy(At(out, index), bytes.data() + at + sizeof(index),
                sizeof(float));
    previous = index;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Compression> ParseCompression(absl::string_view text) {
  if (text.empty() || text == "none") return Compression{};
  if (text == "fp16") return Compression{Kind::kFp16};
  if (text == "bf16") return Compression{Kind::kBf16};
  if (text == "int8") return Compression{Kind::kInt8};
  if (text == "onebit") return Compression{Kind::kOneBit};
  Compression compression{Kind::kTopK};
  absl::string_view fraction = text;
  if (absl::ConsumePrefix(&fraction, "topk:") &&
      absl::SimpleAtod(fraction, &compression.fraction)) {
    if (compression.fraction > 0 && compression.fraction <= 0.5) {
      return compression;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--compress=", text,
                     " (compress= in Python): the fraction must be above 0 and "
                     "at most 0.5, where indices and "
                     "values take as many bytes as the whole gradient"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--compress (compress= in Python): \"", text,
      "\" is none of none, fp16, bf16, int8, onebit, topk:FRACTION"));
}

double BytesPerValue(const Compression& compression) {
  switch (compression.kind) {
    case Kind::kNone:
      return 4;
    case Kind::kFp16:
    case Kind::kBf16:
      return 2;
    case Kind::kInt8:
      return 1 + 1.0 / kInt8Block;
    case Kind::kOneBit:
      return 1.0 / 8 + 8.0 / kOneBitBlock;
    case Kind::kTopK:
      return 8 * compression.fraction;
  }
  return 4;
}

GradientCodec::GradientCodec(const Compression& compression,
                             const Layout& layout)
    : compression_(compression) {
  const int64_t block = compression.kind == Kind::kInt8     ? kInt8Block
                        : compression.kind == Kind::kOneBit ? kOneBitBlock
                                                            : 0;
  if (block == 0) return;
  const int num_tensors = static_cast<int>(layout.tensors().size());
  for (int t = 0; t < num_tensors; ++t) {
    const int64_t end = t + 1 < num_tensors ? layout.tensor(t + 1).begin
                                            : layout.num_elements();
    for (int64_t begin = layout.tensor(t).begin; begin < end; begin += block) {
      const int64_t block_end = std::min(begin + block, end);
      blocks_.push_back(
          {{begin, block_end}, std::min(block_end, layout.tensor(t).end)});
    }
  }
}

template <typename Use>
void GradientCodec::ForEachPart(Range range, Use use) const {
  auto block = std::upper_bound(
      blocks_.begin(), blocks_.end(), range.begin,
      [](int64_t at, const Block& b) { return at < b.range.end; });
  for (; block != blocks_.end() && block->range.begin < range.end; ++block) {
    const Range part = Intersect(block->range, range);
    use(part, Intersect(part, {part.begin, block->used_end}).size());
  }
}

void GradientCodec::Quantise(Range bucket, float* gradients,
                             float* residual) const {
  const int64_t n = bucket.size();
  switch (compression_.kind) {
    case Kind::kNone:
      return;
    case Kind::kFp16:
      return QuantiseFp16(gradients, residual, n);
    case Kind::kBf16:
      return QuantiseBf16(gradients, residual, n);
    case Kind::kInt8:
    case Kind::kOneBit: {
      const auto quantise =
          compression_.kind == Kind::kInt8 ? QuantiseInt8 : QuantiseOneBit;
      ForEachPart(bucket, [&](Range part, int64_t used) {
        quantise(gradients + (part.begin - bucket.begin),
                 residual + (part.begin - bucket.begin), used);
      });
      return;
    }
    case Kind::kTopK: {
      const auto k = static_cast<int64_t>(
          std::ceil(compression_.fraction * static_cast<double>(n)));
      if (n > 0) QuantiseTopK(gradients, residual, n, k);
      return;
    }
  }
}

int64_t GradientCodec::EncodedBytes(Range range, const float* values) const {
  const int64_t n = range.size();
  int64_t parts = 0;
  switch (compression_.kind) {
    case Kind::kNone:
      break;
    case Kind::kFp16:
    case Kind::kBf16:
      return 2 * n;
    case Kind::kInt8:
      ForEachPart(range, [&](Range, int64_t) { ++parts; });
      return n + parts;
    case Kind::kOneBit:
      ForEachPart(range, [&](Range, int64_t) { ++parts; });
      return n / 8 + parts * static_cast<int64_t>(sizeof(OneBitMeans));
    case Kind::kTopK:
      return kPairBytes * (n - std::count(values, values + n, 0.0f));
  }
  return 4 * n;
}

void GradientCodec::Encode(Range range, const float* values, void* out) const {
  const int64_t n = range.size();
  char* to = static_cast<char*>(out);
  switch (compression_.kind) {
    case Kind::kNone:
      std::memcpy(out, values, n * sizeof(float));
      return;
    case Kind::kFp16:
      return EncodeFp16(values, static_cast<UnalignedHalf*>(out), n);
    case Kind::kBf16:
      return EncodeBf16(values, static_cast<UnalignedHalf*>(out), n);
    case Kind::kInt8:
      ForEachPart(range, [&](Range part, int64_t) {
        *to = static_cast<char>(EncodeInt8(values + (part.begin - range.begin),
                                           reinterpret_cast<int8_t*>(to + 1),
                                           part.size()));
        to += 1 + part.size();
      });
      return;
    case Kind::kOneBit:
      ForEachPart(range, [&](Range part, int64_t used) {
        auto* bits = reinterpret_cast<uint8_t*>(to + sizeof(OneBitMeans));
        std::fill_n(bits, part.size() / 8, uint8_t{0});
        const OneBitMeans means =
            EncodeOneBit(values + (part.begin - range.begin), bits, used);
        std::memcpy(to, &means, sizeof(means));
        to += sizeof(means) + part.size() / 8;
      });
      return;
    case Kind::kTopK:
      return EncodePairs(values, n, to);
  }
}

absl::Status GradientCodec::Decode(Range range, absl::string_view bytes,
                                   void* out) const {
  if (compression_.kind == Kind::kTopK) return DecodePairs(range, bytes, out);
  const int64_t expected = EncodedBytes(range, nullptr);
  if (bytes.size() != static_cast<size_t>(expected)) {
    return WrongSize(bytes.size(), range, expected);
  }
  switch (compression_.kind) {
    case Kind::kNone:
    case Kind::kTopK:
      std::memcpy(out, bytes.data(), bytes.size());
      break;
    case Kind::kFp16:
      DecodeFp16(reinterpret_cast<const UnalignedHalf*>(bytes.data()),
                 At(out, 0), range.size());
      break;
    case Kind::kBf16:
      DecodeBf16(reinterpret_cast<const UnalignedHalf*>(bytes.data()),
                 At(out, 0), range.size());
      break;
    case Kind::kInt8:
      return DecodeInt8Parts(range, bytes.data(), out);
    case Kind::kOneBit:
      DecodeOneBitParts(range, bytes.data(), out);
      break;
  }
  return absl::OkStatus();
}

absl::Status GradientCodec::DecodeInt8Parts(Range range, const char* bytes,
                                            void* out) const {
  int wrong = 0;
  ForEachPart(range, [&](Range part, int64_t used) {
    const int scale = static_cast<unsigned char>(*bytes);
    UnalignedFloat* const to = At(out, part.begin - range.begin);
    if (scale == 0 || (scale > kMaxScale && scale != kNotFinite)) {
      wrong = scale == 0 ? -1 : scale;
    } else {
      DecodeInt8(scale, reinterpret_cast<const int8_t*>(bytes + 1), to, used);
      std::memset(to + used, 0, (part.size() - used) * sizeof(float));
    }
    bytes += 1 + part.size();
  });
  if (wrong == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "an encoded gradient with scale ", std::max(wrong, 0),
      ", which is neither from 1 to ", kMaxScale, " nor ", kNotFinite));
}

void GradientCodec::DecodeOneBitParts(Range range, const char* bytes,
                                      void* out) const {
  ForEachPart(range, [&](Range part, int64_t used) {
    OneBitMeans means;
    std::memcpy(&means, bytes, sizeof(means));
    UnalignedFloat* const to = At(out, part.begin - range.begin);
    DecodeOneBit(means, reinterpret_cast<const uint8_t*>(bytes + sizeof(means)),
                 to, used);
    std::memset(to + used, 0, (part.size() - used) * sizeof(float));
    bytes += sizeof(means) + part.size() / 8;
  });
}

absl::StatusOr<std::optional<GradientCodec>> CodecOf(const proto::JobSpec& spec,
                                                     const Layout& layout) {
  const auto compression = ParseCompression(spec.compress());
  if (!compression.ok()) return compression.status();
  std::optional<GradientCodec> codec;
  if (!compression->none()) codec.emplace(*compression, layout);
  return codec;
}

}  // namespace psring
