#include "common/optim/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/optim/compression_kernels.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

// Awkward tensors: gaps behind most, empty ones, some of many blocks.
Layout LayoutOfTensors(int64_t bucket_bytes = 4000) {
  std::vector<proto::TensorShape> tensors;
  for (int64_t elements : {1, 777, 0, 16, 3001, 5, 2048, 64, 1234, 0}) {
    tensors.emplace_back();
    tensors.back().set_name(absl::StrCat("t", tensors.size()));
    tensors.back().add_shape(elements);
  }
  return *Layout::Create(tensors, bucket_bytes);
}

GradientCodec CodecOf(const std::string& name, const Layout& layout) {
  return GradientCodec(*ParseCompression(name), layout);
}

// Of very different sizes, zeros of both signs among them; gaps are 0.
Floats GradientsOf(const Layout& layout, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-150, 20);
  std::uniform_int_distribution<int> kind(0, 9);
  Floats values(layout.num_elements(), 0.0f);
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const Range range = layout.tensor(static_cast<int>(t));
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int k = kind(random);
      values[i] = k == 0   ? 0.0f
                  : k == 1 ? -0.0f
                  : k == 2 ? std::ldexp(normal(random), exponent(random))
                           : normal(random);
    }
  }
  return values;
}

void QuantiseAll(const GradientCodec& codec, const Layout& layout,
                 Floats& gradients, Floats& residual) {
  for (int b = 0; b < layout.num_buckets(); ++b) {
    const Range bucket = layout.bucket(b);
    codec.Quantise(bucket, gradients.data() + bucket.begin,
                   residual.data() + bucket.begin);
  }
}

// With nothing left over from earlier steps.
Floats QuantisedGradientsOf(const GradientCodec& codec, const Layout& layout,
                            int seed) {
  Floats gradients = GradientsOf(layout, seed);
  Floats residual(layout.num_elements(), 0.0f);
  QuantiseAll(codec, layout, gradients, residual);
  return gradients;
}

std::string Encoded(const GradientCodec& codec, Range range,
                    const Floats& gradients) {
  const float* values = gradients.data() + range.begin;
  std::string bytes(codec.EncodedBytes(range, values), '?');
  codec.Encode(range, values, bytes.data());
  return bytes;
}

// Bit by bit: -0 is not 0, and NaN is NaN.
std::vector<uint32_t> BitsOf(const float* values, int64_t n) {
  std::vector<uint32_t> bits(n);
  std::memcpy(bits.data(), values, n * sizeof(float));
  return bits;
}

class CompressionTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Ranges as pieces, slices and segments cut them, and the whole bucket.
  void ExpectExactInEveryRange(const Layout& layout, const Floats& gradients) {
    const GradientCodec codec = CodecOf(GetParam(), layout);
    for (int b = 0; b < layout.num_buckets(); ++b) {
      const Range bucket = layout.bucket(b);
      for (int parts : {1, 2, 3, 7}) {
        for (int c = 0; c < parts; ++c) {
          ExpectExact(codec, NearEqualPart(bucket, parts, c), gradients);
        }
      }
    }
  }

  void ExpectExact(const GradientCodec& codec, Range range,
                   const Floats& gradients) {
    const std::string bytes = Encoded(codec, range, gradients);
    std::string out(range.size() * sizeof(float) + 1, '!');  // not aligned
    const absl::Status status = codec.Decode(range, bytes, out.data() + 1);
    ASSERT_TRUE(status.ok()) << status;
    Floats decoded(range.size());
    std::memcpy(decoded.data(), out.data() + 1, out.size() - 1);
    EXPECT_EQ(BitsOf(decoded.data(), range.size()),
              BitsOf(gradients.data() + range.begin, range.size()))
        << range.begin << " to " << range.end;
  }
};

INSTANTIATE_TEST_SUITE_P(All, CompressionTest,
                         ::testing::Values("fp16", "bf16", "int8", "onebit",
                                           "topk:0.01", "topk:0.5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

TEST_P(CompressionTest, WhatIsEncodedIsDecodedExactlyHoweverItIsCut) {
  for (int64_t bucket_bytes : {4000, 1 << 20}) {
    const Layout layout = LayoutOfTensors(bucket_bytes);
    const GradientCodec codec = CodecOf(GetParam(), layout);
    Floats residual(layout.num_elements(), 0.0f);
    for (int seed = 0; seed < 5; ++seed) {
      Floats gradients = GradientsOf(layout, seed);
      for (float& g : gradients) g *= std::ldexp(1.0f, 20 * (seed - 2));
      QuantiseAll(codec, layout, gradients, residual);
      ExpectExactInEveryRange(layout, gradients);
    }
  }
}

// None is what the memory held before, in gaps between tensors either.
TEST_P(CompressionTest, EveryByteIsWritten) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const Floats gradients = QuantisedGradientsOf(codec, layout, 1);
  for (int b = 0; b < layout.num_buckets(); ++b) {
    const Range bucket = layout.bucket(b);
    const float* const values = gradients.data() + bucket.begin;
    std::string zeros(codec.EncodedBytes(bucket, values), '\0');
    std::string ones(zeros.size(), '\xff');
    codec.Encode(bucket, values, zeros.data());
    codec.Encode(bucket, values, ones.data());
    EXPECT_TRUE(zeros == ones) << "bucket " << b;
  }
}

TEST_P(CompressionTest, GapsStayZero) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  Floats gradients = GradientsOf(layout, 1);
  Floats residual(layout.num_elements(), 0.0f);
  QuantiseAll(codec, layout, gradients, residual);
  std::vector<bool> used(layout.num_elements(), false);
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const Range range = layout.tensor(static_cast<int>(t));
    for (int64_t i = range.begin; i < range.end; ++i) used[i] = true;
  }
  for (int64_t i = 0; i < layout.num_elements(); ++i) {
    if (used[i]) continue;
    ASSERT_EQ(gradients[i], 0.0f) << i;
    ASSERT_EQ(residual[i], 0.0f) << i;
  }
}

TEST_P(CompressionTest, WhatIsQuantisedStaysAsItIs) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  Floats gradients = GradientsOf(layout, 2);
  Floats residual(layout.num_elements(), 0.0f);
  QuantiseAll(codec, layout, gradients, residual);
  const Floats once = gradients;
  residual.assign(residual.size(), 0.0f);
  QuantiseAll(codec, layout, gradients, residual);
  EXPECT_EQ(gradients, once);
  EXPECT_EQ(residual, Floats(layout.num_elements(), 0.0f));
}

// What has gone out and what is kept add up to what came in.
TEST_P(CompressionTest, ErrorFeedbackLosesNothing) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const int64_t n = layout.num_elements();
  std::vector<double> in(n, 0.0), out(n, 0.0);
  Floats residual(n, 0.0f);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int step = 0; step < 300; ++step) {
    Floats gradients(n, 0.0f);
    for (size_t t = 0; t < layout.tensors().size(); ++t) {
      const Range range = layout.tensor(static_cast<int>(t));
      for (int64_t i = range.begin; i < range.end; ++i) {
        gradients[i] = 0.3f + normal(random);
      }
    }
    for (int64_t i = 0; i < n; ++i) in[i] += gradients[i];
    QuantiseAll(codec, layout, gradients, residual);
    for (int64_t i = 0; i < n; ++i) out[i] += gradients[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_NEAR(out[i] + residual[i], in[i], 1e-2) << i;
  }
}

TEST_P(CompressionTest, WhatIsNotFiniteStaysSo) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const float infinity = std::numeric_limits<float>::infinity();
  const int64_t at = layout.tensor(4).begin + 1500;
  for (float wrong : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    Floats gradients = GradientsOf(layout, 4);
    Floats residual(layout.num_elements(), 0.0f);
    gradients[at] = wrong;
    QuantiseAll(codec, layout, gradients, residual);
    EXPECT_FALSE(std::isfinite(gradients[at])) << wrong;
    ExpectExactInEveryRange(layout, gradients);
  }
}

// As where a loss scale is too large: that step is skipped, the next is not.
TEST_P(CompressionTest, WhatIsNotFiniteIsGoneInTheNextStep) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const auto is_finite = [](float value) { return std::isfinite(value); };
  const float infinity = std::numeric_limits<float>::infinity();
  for (float wrong : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    Floats residual(layout.num_elements(), 0.0f);
    Floats all_wrong(layout.num_elements(), wrong);
    QuantiseAll(codec, layout, all_wrong, residual);
    Floats gradients = GradientsOf(layout, 4);
    QuantiseAll(codec, layout, gradients, residual);
    EXPECT_TRUE(std::all_of(gradients.begin(), gradients.end(), is_finite));
    EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), is_finite));
  }
}

TEST_P(CompressionTest, BytesOfAnyOtherSizeAreRefused) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const Floats gradients = QuantisedGradientsOf(codec, layout, 5);
  const Range range = layout.bucket(0);
  Floats out(range.size());
  std::string bytes = Encoded(codec, range, gradients);
  bytes += "0123456789abcdef";
  const size_t right = bytes.size() - 16;
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const absl::Status status =
        codec.Decode(range, {bytes.data(), size}, out.data());
    const bool pairs = GetParam()[0] == 't' && size < right && size % 8 == 0;
    EXPECT_EQ(status.ok(), size == right || pairs) << size;
  }
}

TEST_P(CompressionTest, GarbageOfTheRightSizeHarmsNothing) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf(GetParam(), layout);
  const Floats zeros(layout.num_elements(), 0.0f);
  const Range range = layout.bucket(1);
  std::mt19937 random(6);
  constexpr int kBehind = 64;  // elements that are not the range's
  Floats out(range.size() + kBehind, 7.0f);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = Encoded(codec, range, zeros);
    if (GetParam()[0] == 't') bytes.resize(8 * (i % 50));
    for (char& c : bytes) c = static_cast<char>(random());
    const absl::Status status = codec.Decode(range, bytes, out.data());
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(std::count(out.end() - kBehind, out.end(), 7.0f), kBehind);
  }
}

TEST(Compression, TakesAsManyBytesAsTheFormulasSay) {
  const Layout layout = LayoutOfTensors(1 << 20);
  const Floats values(layout.num_elements(), 1.0f);
  const auto bytes = [&](const std::string& name, Range range) {
    return CodecOf(name, layout)
        .EncodedBytes(range, values.data() + range.begin);
  };
  const Range all = layout.bucket(0);
  EXPECT_EQ(bytes("fp16", all), 2 * all.size());
  EXPECT_EQ(bytes("bf16", all), 2 * all.size());
  // Blocks of 1, 777, 0, 16, 3001, 5, 2048, 64, 1234, 0 elements.
  EXPECT_EQ(bytes("int8", all),
            all.size() + (1 + 4 + 0 + 1 + 12 + 1 + 8 + 1 + 5 + 0));
  EXPECT_EQ(bytes("onebit", all),
            all.size() / 8 + 8 * (1 + 1 + 0 + 1 + 3 + 1 + 2 + 1 + 2 + 0));
  // The tensor of 2048 alone, and its middle, which has parts of 2 blocks.
  const Range tensor = layout.tensor(6);
  EXPECT_EQ(bytes("int8", tensor), 2048 + 8);
  EXPECT_EQ(bytes("onebit", tensor), 256 + 16);
  const Range middle{tensor.begin + 1008, tensor.begin + 1040};
  EXPECT_EQ(bytes("int8", middle), 32 + 2);
  EXPECT_EQ(bytes("onebit", middle), 4 + 16);
  EXPECT_EQ(bytes("topk:0.01", middle), 32 * 8);
}

// Of tensors that fill their blocks.
TEST(Compression, ValuesTakeAsManyBytesOnAverageAsIsSaid) {
  proto::TensorShape tensor;
  tensor.set_name("t");
  tensor.add_shape(4096);
  const Layout layout = *Layout::Create({tensor}, 1 << 20);
  for (const char* name : {"fp16", "bf16", "int8", "onebit", "topk:0.25"}) {
    const GradientCodec codec = CodecOf(name, layout);
    const Floats gradients = QuantisedGradientsOf(codec, layout, 8);
    EXPECT_EQ(codec.EncodedBytes(layout.bucket(0), gradients.data()),
              4096 * BytesPerValue(*ParseCompression(name)))
        << name;
  }
  EXPECT_EQ(BytesPerValue({}), 4);
}

TEST(Compression, TopKSendsThatFractionOfABucket) {
  const Layout layout = LayoutOfTensors(1 << 20);
  const GradientCodec codec = CodecOf("topk:0.1", layout);
  const Floats gradients = QuantisedGradientsOf(codec, layout, 7);
  const auto k = static_cast<int64_t>(
      std::ceil(0.1 * static_cast<double>(layout.num_elements())));
  EXPECT_EQ(codec.EncodedBytes(layout.bucket(0), gradients.data()), 8 * k);
}

TEST(Compression, TopKSendsTheLargestOfHoweverSmallABucket) {
  const Layout layout = LayoutOfTensors(1 << 20);
  const GradientCodec codec = CodecOf("topk:0.0001", layout);
  Floats gradients(layout.num_elements(), 0.0f);
  gradients[0] = 0.5f;
  gradients[layout.tensor(4).begin + 1500] = -3;
  Floats residual(layout.num_elements(), 0.0f);
  QuantiseAll(codec, layout, gradients, residual);
  EXPECT_EQ(gradients[layout.tensor(4).begin + 1500], -3);
  EXPECT_EQ(gradients[0], 0);
  EXPECT_EQ(residual[0], 0.5f);
}

Floats Quantised(void (*quantise)(float*, float*, int64_t), Floats values,
                 Floats* residual = nullptr) {
  Floats rest(values.size(), 0.0f);
  quantise(values.data(), rest.data(), static_cast<int64_t>(values.size()));
  if (residual != nullptr) *residual = rest;
  return values;
}

// The compiler's own, which clang has from version 15 on.
#if !defined(__clang__) || __clang_major__ >= 15

TEST(Fp16, RoundsAsTheCompilersHalfDoes) {
  std::mt19937 random(8);
  Floats values;
  while (values.size() < 1000000) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    // Most bits are out of range: bring half of them near it.
    const float near = std::ldexp(value, values.size() % 2 == 0 ? 0 : -100);
    if (std::isfinite(value)) values.push_back(near);
  }
  for (float edge : {65503.9f, 65504.0f, 65519.9f, 65520.0f, 6e-8f, 2.9e-8f,
                     3e-8f, 6.1e-5f, 6.09e-5f}) {
    values.push_back(edge);
    values.push_back(-edge);
  }
  const Floats rounded = Quantised(QuantiseFp16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    float expected = static_cast<float>(static_cast<_Float16>(values[i]));
    if (std::isinf(expected)) expected = std::copysign(65504.0f, expected);
    ASSERT_EQ(rounded[i], expected) << values[i];
  }
}

TEST(Fp16, EveryHalfIsEncodedAsItself) {
  std::vector<uint16_t> halves;
  for (int h = 0; h < 1 << 16; ++h) {
    if ((h & 0x7c00) != 0x7c00) halves.push_back(static_cast<uint16_t>(h));
  }
  const auto n = static_cast<int64_t>(halves.size());
  Floats values(n);
  DecodeFp16(halves.data(), values.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(values[i],
              static_cast<float>(std::bit_cast<_Float16>(halves[i])));
  }
  std::vector<uint16_t> again(n);
  EncodeFp16(values.data(), again.data(), n);
  EXPECT_EQ(again, halves);
}

#endif

TEST(Bf16, RoundsToNearestEvenAndSaturates) {
  const float max = std::numeric_limits<float>::max();
  EXPECT_THAT(Quantised(QuantiseBf16, {1.0f, 1.00390625f, 1.01171875f, 1.004f,
                                       -1.0117f, max}),
              ElementsAre(1.0f, 1.0f, 1.015625f, 1.0078125f, -1.0078125f,
                          std::bit_cast<float>(0x7f7f0000)));
}

TEST(Int8, IsWithinHalfAUnitOfABlocksLargest) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (int e : {-140, -126, -120, -30, 0, 30, 120}) {
    Floats values(256);
    float largest = 0;
    for (float& v : values) {
      v = std::ldexp(normal(random), e);
      largest = std::max(largest, std::abs(v));
    }
    const float unit =
        std::max(largest / 64, std::numeric_limits<float>::min());
    Floats residual;
    const Floats rounded = Quantised(QuantiseInt8, values, &residual);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(residual[i]), unit / 2) << values[i];
      ASSERT_EQ(rounded[i] + residual[i], values[i]);
    }
  }
}

TEST(Int8, ClipsWhatWouldRoundBeyondIt) {
  EXPECT_THAT(Quantised(QuantiseInt8, {127.9f, -127.9f, 126.5f, 0.4f}),
              ElementsAre(127.0f, -127.0f, 126.0f, 0.0f));
}

TEST(Int8, ScalesThatNoEncoderWritesAreRefused) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf("int8", layout);
  const Range range = layout.bucket(0);
  const std::string good =
      Encoded(codec, range, Floats(layout.num_elements(), 1.0f));
  Floats out(range.size());
  for (int scale = 0; scale < 256; ++scale) {
    std::string bytes = good;
    bytes[0] = static_cast<char>(scale);
    EXPECT_EQ(codec.Decode(range, bytes, out.data()).ok(),
              (scale >= 1 && scale <= 248) || scale == 255)
        << scale;
  }
}

TEST(OneBit, ReplacesValuesByTheMeanOfTheirSign) {
  Floats residual;
  EXPECT_THAT(
      Quantised(QuantiseOneBit, {1, 3, -2, -4, 2, 0, -3, 4, 5}, &residual),
      ElementsAre(2.5f, 2.5f, -3, -3, 2.5f, 2.5f, -3, 2.5f, 2.5f));
  EXPECT_THAT(residual,
              ElementsAre(-1.5f, 0.5f, 1, -1, -0.5f, -2.5f, 0, 1.5f, 2.5f));
}

// Their mean has their sign: it is how the two are told apart.
TEST(OneBit, NegativeZerosStayApartFromWhatIsPositive) {
  Floats values = {-0.0f, 1, 3, -0.0f};
  Floats residual(4, -0.0f);
  QuantiseOneBit(values.data(), residual.data(), 4);
  EXPECT_THAT(values, ElementsAre(0, 2, 2, 0));
  EXPECT_TRUE(std::signbit(values[0]) && std::signbit(values[3]));
}

TEST(OneBit, BitsThatAreMissingFromTheLastByteAreZero) {
  const Floats values(9, -1.0f);
  std::vector<uint8_t> bits(2, 0xff);
  const OneBitMeans means = EncodeOneBit(values.data(), bits.data(), 9);
  EXPECT_EQ(means.low, -1);
  EXPECT_THAT(bits, ElementsAre(0xff, 1));
}

TEST(TopK, TakesTheFirstOfEqualMagnitudes) {
  Floats values = {1, -2, 0.5f, 2, -2, 1};
  Floats residual(6, 0.0f);
  QuantiseTopK(values.data(), residual.data(), 6, 2);
  EXPECT_THAT(values, ElementsAre(0, -2, 0, 2, 0, 0));
  EXPECT_THAT(residual, ElementsAre(1, 0, 0.5f, 0, -2, 1));
}

TEST(TopK, IndicesMustAscendWithinTheRange) {
  const Layout layout = LayoutOfTensors();
  const GradientCodec codec = CodecOf("topk:0.1", layout);
  const Range range = layout.bucket(0);
  const auto decode = [&](const std::vector<uint32_t>& indices) {
    std::string bytes;
    for (uint32_t index : indices) {
      bytes.append(reinterpret_cast<const char*>(&index), sizeof(index));
      bytes.append("abcd");
    }
    Floats out(range.size());
    return codec.Decode(range, bytes, out.data());
  };
  const auto size = static_cast<uint32_t>(range.size());
  EXPECT_TRUE(decode({}).ok());
  EXPECT_TRUE(decode({0, 5, size - 1}).ok());
  for (const std::vector<uint32_t>& wrong : std::vector<std::vector<uint32_t>>{
           {size}, {0xffffffff}, {5, 5}, {5, 4}, {0, 1, 0}}) {
    const absl::Status status = decode(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("index"));
  }
}

TEST(Compression, WhatCannotBeParsedIsNamedWithWhatCan) {
  EXPECT_TRUE(ParseCompression("")->none());
  EXPECT_TRUE(ParseCompression("none")->none());
  EXPECT_EQ(ParseCompression("fp16")->kind, Compression::Kind::kFp16);
  EXPECT_EQ(ParseCompression("bf16")->kind, Compression::Kind::kBf16);
  EXPECT_EQ(ParseCompression("topk:0.01")->fraction, 0.01);
  for (const char* wrong :
       {"gzip", "topk", "topk:", "topk:x", "fp16 ", "topk:1%", "int4"}) {
    const auto parsed = ParseCompression(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_THAT(std::string(parsed.status().message()),
                ::testing::AllOf(HasSubstr("--compress"), HasSubstr(wrong),
                                 HasSubstr("int8, onebit, topk:FRACTION")));
  }
  for (const char* wrong : {"topk:0", "topk:-0.1", "topk:0.51", "topk:nan"}) {
    const auto parsed = ParseCompression(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("above 0 and at most 0.5"));
  }
}

}  // namespace
}  // namespace psring
