#include "common/model/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace psring {
namespace {

using Floats = std::vector<float>;

// Values of widely different size, so that the order of a sum shows in it.
Floats RandomFloats(int64_t size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& value : values) {
    value = std::ldexp(normal(random), static_cast<int>(random() % 20));
  }
  return values;
}

std::vector<Floats> RandomInputs(int ranks, int64_t size,
                                 std::mt19937& random) {
  std::vector<Floats> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(RandomFloats(size, random));
  return inputs;
}

// A ring's reduce-scatter, by its definition: at hop h rank r sends slice
// r-h-1 to rank r+1, which adds its own values. After n-1 hops rank r holds
// the whole sum of slice r. `bucket` begins at element 0.
Floats RingSum(std::vector<Floats> ranks, float scale) {
  const int n = static_cast<int>(ranks.size());
  const Range bucket{0, static_cast<int64_t>(ranks[0].size())};
  for (int hop = 0; hop < n - 1; ++hop) {
    const std::vector<Floats> sent = ranks;
    for (int r = 0; r < n; ++r) {
      const int slice = (r - hop - 1 + 2 * n) % n;
      const Range range = NearEqualPart(bucket, n, slice);
      Floats& receiver = ranks[(r + 1) % n];
      for (int64_t i = range.begin; i < range.end; ++i) {
        receiver[i] = sent[r][i] + receiver[i];
      }
    }
  }
  Floats sum(bucket.size());
  for (int r = 0; r < n; ++r) {
    const Range range = NearEqualPart(bucket, n, r);
    for (int64_t i = range.begin; i < range.end; ++i) {
      sum[i] = ranks[r][i] * scale;
    }
  }
  return sum;
}

// The canonical sum of `range` of a bucket that begins at element `begin`.
Floats SumOf(const std::vector<Floats>& inputs, int64_t begin, Range range,
             float scale) {
  const int64_t size = static_cast<int64_t>(inputs[0].size());
  std::vector<const void*> pointers;
  for (const Floats& input : inputs) {
    pointers.push_back(input.data() + (range.begin - begin));
  }
  Floats out(range.size());
  CanonicalSum({begin, begin + size}, range, pointers, scale, out.data());
  return out;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

TEST(CanonicalSumTest, EqualsARingsReduceScatterBitForBit) {
  std::mt19937 random(1);
  for (int n = 1; n <= 8; ++n) {
    for (const int64_t size : {0, 1, 15, 16, 17, 127, 1000, 4099, 70001}) {
      const std::vector<Floats> inputs = RandomInputs(n, size, random);
      const float scale = 1.0f / n;
      EXPECT_TRUE(SameBits(SumOf(inputs, 160, {160, 160 + size}, scale),
                           RingSum(inputs, scale)))
          << n << " ranks, " << size << " elements";
    }
  }
}

TEST(CanonicalSumTest, DependsOnTheOrderOfRanks) {
  std::mt19937 random(2);
  std::vector<Floats> inputs = RandomInputs(4, 1000, random);
  const Floats sum = SumOf(inputs, 0, {0, 1000}, 1);
  std::swap(inputs[0], inputs[2]);
  EXPECT_FALSE(SameBits(SumOf(inputs, 0, {0, 1000}, 1), sum))
      << "these inputs cannot tell orders apart";
}

TEST(CanonicalSumTest, RangesThatCutSlicesAnywhereGiveTheSameBits) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int n = 1 + random() % 8;
    const int64_t size = random() % 20000;
    const int64_t begin = random() % 100 * kAlignElements;
    const std::vector<Floats> inputs = RandomInputs(n, size, random);
    const Floats whole = SumOf(inputs, begin, {begin, begin + size}, 0.3f);
    Floats joined;
    for (int64_t cut = 0; cut < size;) {
      const int64_t next = std::min<int64_t>(size, cut + random() % 9000);
      const Floats part =
          SumOf(inputs, begin, {begin + cut, begin + next}, 0.3f);
      joined.insert(joined.end(), part.begin(), part.end());
      cut = next;
    }
    EXPECT_TRUE(SameBits(joined, whole)) << n << " ranks, " << size;
  }
}

TEST(CanonicalSumTest, OutputMayBeAnyInput) {
  std::mt19937 random(4);
  const std::vector<Floats> inputs = RandomInputs(5, 9001, random);
  const Floats expected = SumOf(inputs, 0, {0, 9001}, 0.2f);
  for (size_t reused = 0; reused < inputs.size(); ++reused) {
    std::vector<Floats> copies = inputs;
    const std::vector<const void*> pointers = {
        copies[0].data(), copies[1].data(), copies[2].data(), copies[3].data(),
        copies[4].data()};
    CanonicalSum({0, 9001}, {0, 9001}, pointers, 0.2f, copies[reused].data());
    EXPECT_TRUE(SameBits(copies[reused], expected)) << "input " << reused;
  }
}

TEST(CanonicalSumTest, InputsNeedNoAlignment) {
  std::mt19937 random(5);
  const std::vector<Floats> inputs = RandomInputs(3, 777, random);
  std::vector<std::vector<char>> frames;
  std::vector<const void*> pointers;
  for (size_t r = 0; r < inputs.size(); ++r) {
    std::vector<char>& frame = frames.emplace_back(777 * 4 + 1 + r);
    std::memcpy(frame.data() + 1 + r, inputs[r].data(), 777 * 4);
    pointers.push_back(frame.data() + 1 + r);
  }
  Floats out(777);
  CanonicalSum({0, 777}, {0, 777}, pointers, 0.5f, out.data());
  EXPECT_TRUE(SameBits(out, SumOf(inputs, 0, {0, 777}, 0.5f)));
}

TEST(AddIntoTest, EqualsAScalarLoopBitForBitAtAnyAlignment) {
  std::mt19937 random(6);
  for (int64_t size = 0; size < 200; ++size) {
    Floats sum = RandomFloats(size, random);
    const Floats values = RandomFloats(size, random);
    std::vector<char> frame(2 * (size * 4 + 3));
    char* a = frame.data() + 1;
    char* b = a + size * 4 + 1;
    std::copy_n(reinterpret_cast<const char*>(sum.data()), size * 4, a);
    std::copy_n(reinterpret_cast<const char*>(values.data()), size * 4, b);
    AddInto(a, b, size);
    Scale(a, 0.7f, size);
    for (int64_t i = 0; i < size; ++i) sum[i] = (sum[i] + values[i]) * 0.7f;
    EXPECT_TRUE(
        std::equal(a, a + size * 4, reinterpret_cast<const char*>(sum.data())));
  }
}

// As ranks on one host do: the results replace the inputs.
TEST(CanonicalSumToAll, WritesTheSameBitsEverywhereInPlace) {
  std::mt19937 random(5);
  for (int ranks : {1, 2, 3, 4, 8}) {
    for (int64_t size : {1, 15, 16, 1000, 5003}) {
      std::vector<Floats> data = RandomInputs(ranks, size, random);
      const Floats expected = RingSum(data, 0.25f);
      std::vector<const void*> inputs;
      std::vector<float*> outs;
      for (Floats& d : data) {
        inputs.push_back(d.data());
        outs.push_back(d.data());
      }
      CanonicalSumToAll({0, size}, {0, size}, inputs, 0.25f, outs);
      for (const Floats& d : data) ASSERT_EQ(d, expected) << ranks;
    }
  }
}

}  // namespace
}  // namespace psring
