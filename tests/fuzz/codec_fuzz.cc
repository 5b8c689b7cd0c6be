// common/optim/compression.h: encoded gradients of any bytes, and gradients of
// any floats there and back.
#include <cmath>
#include <cstring>
#include <vector>

#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr const char* kKinds[] = {"fp16", "bf16", "int8", "onebit",
                                  "topk:0.25"};
constexpr int kNumKinds = 5;

// Blocks that are full, cut, and end in gaps.
Layout SomeLayout() {
  std::vector<proto::TensorShape> tensors(3);
  const int64_t sizes[] = {5, 300, 1100};
  for (int i = 0; i < 3; ++i) {
    tensors[i].set_name(std::string(1, static_cast<char>('a' + i)));
    tensors[i].add_shape(sizes[i]);
  }
  auto layout = Layout::Create(tensors, 1 << 20);
  Require(layout.ok(), "the layout is right");
  return *std::move(layout);
}

// Equal bits, or both not a number.
bool Same(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 ||
         (std::isnan(a) && std::isnan(b));
}

std::string EncodeAll(const GradientCodec& codec, Range range,
                      const std::vector<float>& values) {
  std::string bytes(
      static_cast<size_t>(codec.EncodedBytes(range, values.data())), '\0');
  codec.Encode(range, values.data(), bytes.data());
  return bytes;
}

void RequireSame(const std::vector<float>& a, const std::vector<float>& b,
                 absl::string_view what) {
  for (size_t i = 0; i < a.size(); ++i) Require(Same(a[i], b[i]), what);
}

void DecodeAnything(const GradientCodec& codec, Range range,
                    const std::string& bytes) {
  const auto n = static_cast<size_t>(range.size());
  std::vector<float> values(n);
  const absl::Status status = codec.Decode(range, bytes, values.data());
  if (!status.ok()) return RequireReason(status);
  // Of any alignment.
  std::vector<char> odd(n * sizeof(float) + 1);
  Require(codec.Decode(range, bytes, odd.data() + 1).ok(), "it decodes again");
  Require(std::memcmp(odd.data() + 1, values.data(), n * sizeof(float)) == 0,
          "to the same, wherever it lies");
}

// What has been quantised travels without loss.
void ThereAndBack(const GradientCodec& codec, const Layout& layout,
                  Bytes input) {
  const Range bucket = layout.bucket(0);
  const auto n = static_cast<size_t>(bucket.size());
  std::vector<float> gradients(n), residual(n), decoded(n);
  for (int t = 0; t < 3; ++t) {
    const Range tensor = layout.tensor(t);
    for (int64_t i = tensor.begin; i < tensor.end && !input.empty(); ++i) {
      const auto bits = static_cast<uint32_t>(input.Number(4));
      std::memcpy(&gradients[static_cast<size_t>(i)], &bits, sizeof(bits));
    }
  }
  codec.Quantise(bucket, gradients.data(), residual.data());
  const std::string bytes = EncodeAll(codec, bucket, gradients);
  Require(codec.Decode(bucket, bytes, decoded.data()).ok(),
          "what is encoded can be decoded");
  RequireSame(gradients, decoded, "encoding loses nothing");
}

}  // namespace

std::vector<std::string> Seeds() {
  const Layout layout = SomeLayout();
  const Range range = layout.bucket(0);
  std::vector<std::string> seeds;
  for (int kind = 0; kind < kNumKinds; ++kind) {
    const GradientCodec codec(*ParseCompression(kKinds[kind]), layout);
    std::vector<float> values(static_cast<size_t>(range.size()));
    std::vector<float> residual(values.size());
    Input floats;
    floats.Byte(kind).Byte(1);
    for (int i = 0; i < 40; ++i) {
      values[static_cast<size_t>(16 + i)] = std::sin(static_cast<float>(i));
      floats.Number(0x3f800000u + static_cast<uint32_t>(i) * 77777, 4);
    }
    codec.Quantise(range, values.data(), residual.data());
    seeds.push_back(floats.bytes());
    seeds.push_back(Input()
                        .Byte(kind)
                        .Byte(0)
                        .Byte(0)
                        .Byte(static_cast<int>(range.size() / 16 - 1))
                        .Rest(EncodeAll(codec, range, values))
                        .bytes());
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  static const Layout layout = fuzz::SomeLayout();
  fuzz::Bytes input(data, size);
  const GradientCodec codec(
      *ParseCompression(fuzz::kKinds[input.Below(fuzz::kNumKinds)]), layout);
  if (input.Flag()) {
    fuzz::ThereAndBack(codec, layout, input);
    return 0;
  }
  const int64_t blocks = layout.num_elements() / kAlignElements;
  const int64_t begin = input.Byte() % blocks;
  const int64_t end = begin + 1 + input.Byte() % (blocks - begin);
  fuzz::DecodeAnything(codec, {begin * kAlignElements, end * kAlignElements},
                       input.Rest());
  return 0;
}
