#include "collectives/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace psring {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::vector<T> ReduceOf(const Arithmetic& how,
                        const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  Reduce(how, pointers, static_cast<int64_t>(out.size()), out.data());
  return out;
}

// One input: there and back.
uint16_t Rounded(DType dtype, double factor, uint16_t bits) {
  return ReduceOf<uint16_t>({dtype, Reduction::kSum, 1, factor}, {{bits}})[0];
}

// The compiler's own half is the reference, which clang has from version 15 on.
#if !defined(__clang__) || __clang_major__ >= 15
TEST(ReductionTest, ReadsAndRoundsEveryHalfAsIeeeSays) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const _Float16 value = std::bit_cast<_Float16>(half);
    for (const float factor : {1.0f, 0.333f, 1.0f / 4096, 3.0f}) {
      const float product = static_cast<float>(value) * factor;
      const uint16_t expected =
          std::bit_cast<uint16_t>(static_cast<_Float16>(product));
      const uint16_t got = Rounded(DType::kFloat16, factor, half);
      if (std::isnan(product)) {
        EXPECT_GT(got & 0x7fff, 0x7c00) << bits;
      } else {
        ASSERT_EQ(got, expected) << bits << " * " << factor;
      }
    }
  }
}
#endif

TEST(ReductionTest, RoundsBfloat16ToTheNearestEven) {
  const auto round = [](float value) {
    // value = 1 * value: the factor is a float.
    return Rounded(DType::kBfloat16, value, 0x3f80);
  };
  EXPECT_EQ(round(1.0f), 0x3f80);
  EXPECT_EQ(round(std::bit_cast<float>(0x3f808000)), 0x3f80);  // ties to even
  EXPECT_EQ(round(std::bit_cast<float>(0x3f818000)), 0x3f82);
  EXPECT_EQ(round(std::bit_cast<float>(0x3f808001)), 0x3f81);
  EXPECT_EQ(round(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(round(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(round(kNan) & 0x7fc0, 0x7fc0);
}

// Three numbers of which two rounded sums lose what one keeps.
TEST(ReductionTest, RoundsHalvesOnce) {
  const std::vector<std::vector<uint16_t>> inputs = {
      {0x6800}, {0x3c00}, {0x3c00}};  // 2048, 1, 1
  EXPECT_EQ(ReduceOf<uint16_t>({DType::kFloat16}, inputs)[0], 0x6801);  // 2050
}

TEST(ReductionTest, AddsFromLeftToRight) {
  const std::vector<std::vector<float>> inputs = {{1e8f}, {-1e8f}, {1.0f}};
  EXPECT_EQ(ReduceOf<float>({DType::kFloat32}, inputs)[0], 1.0f);
  const std::vector<std::vector<float>> others = {{1.0f}, {1e8f}, {-1e8f}};
  EXPECT_EQ(ReduceOf<float>({DType::kFloat32}, others)[0], 0.0f);
}

TEST(ReductionTest, KeepsWhatIsNoNumber) {
  const std::vector<std::vector<float>> inputs = {
      {kNan, 1, 1}, {1, kNan, 1}, {2, 2, kNan}};
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    for (const float value :
         ReduceOf<float>({DType::kFloat32, reduction}, inputs)) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(ReductionTest, WrapsIntegersAround) {
  EXPECT_EQ(ReduceOf<int8_t>({DType::kInt8}, {{127}, {1}})[0], -128);
  EXPECT_EQ(ReduceOf<int64_t>({DType::kInt64, Reduction::kProduct},
                              {{int64_t{1} << 62}, {6}})[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ReduceOf<int16_t>({DType::kInt16, Reduction::kMin}, {{-3}, {2}})[0],
            -3);
  EXPECT_EQ(
      ReduceOf<uint8_t>({DType::kUint8, Reduction::kMax}, {{200}, {3}})[0],
      200);
}

TEST(ReductionTest, TakesBoolsAsTruthValues) {
  const std::vector<std::vector<uint8_t>> inputs = {{0, 1, 7}, {0, 0, 1}};
  const std::vector<uint8_t> any = {0, 1, 1}, all = {0, 0, 1};
  EXPECT_EQ(ReduceOf<uint8_t>({DType::kBool, Reduction::kSum}, inputs), any);
  EXPECT_EQ(ReduceOf<uint8_t>({DType::kBool, Reduction::kMax}, inputs), any);
  EXPECT_EQ(ReduceOf<uint8_t>({DType::kBool, Reduction::kMin}, inputs), all);
  EXPECT_EQ(ReduceOf<uint8_t>({DType::kBool, Reduction::kProduct}, inputs),
            all);
}

TEST(ReductionTest, AveragesAndScales) {
  const std::vector<std::vector<double>> inputs = {{1}, {2}, {6}};
  EXPECT_EQ(ReduceOf<double>({DType::kFloat64, Reduction::kAverage}, inputs)[0],
            9 * (1.0 / 3));
  EXPECT_EQ(ReduceOf<double>({DType::kFloat64, Reduction::kProduct, 2, 0.5},
                             inputs)[0],
            48);
}

}  // namespace
}  // namespace psring
