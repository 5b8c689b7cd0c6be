#include "worker/torch/precision.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParsePrecision, KnowsFour) {
  EXPECT_EQ(*ParsePrecision("fp32"), Precision::kFp32);
  EXPECT_EQ(*ParsePrecision("tf32"), Precision::kTf32);
  EXPECT_EQ(*ParsePrecision("bf16"), Precision::kBf16);
  EXPECT_EQ(*ParsePrecision("fp16"), Precision::kFp16);
  EXPECT_THAT(std::string(ParsePrecision("fp8").status().message()),
              AllOf(HasSubstr("\"fp8\""), HasSubstr("bf16")));
}

TEST(CheckPrecision, NamesWhatTheDeviceTakes) {
  const std::string cpu;
  EXPECT_TRUE(CheckPrecision(Precision::kFp32, cpu).ok());
  EXPECT_TRUE(CheckPrecision(Precision::kBf16, cpu).ok());
  for (const Precision p : {Precision::kTf32, Precision::kFp16}) {
    EXPECT_THAT(std::string(CheckPrecision(p, cpu).message()),
                HasSubstr("the CPU takes fp32 and bf16"));
  }
  for (const Precision p : {Precision::kTf32, Precision::kBf16}) {
    EXPECT_THAT(
        std::string(CheckPrecision(p, "7.5").message()),
        AllOf(HasSubstr("capability 8.0"), HasSubstr("this one has 7.5")));
    EXPECT_TRUE(CheckPrecision(p, "9.0").ok());
    EXPECT_TRUE(CheckPrecision(p, "12.0").ok());
  }
  EXPECT_TRUE(CheckPrecision(Precision::kFp16, "7.0").ok());
}

TEST(SetGpuModes, LetsCublasBeDeterministicAsTheUserMayToo) {
  constexpr char kName[] = "CUBLAS_WORKSPACE_CONFIG";
  unsetenv(kName);
  SetGpuModes(Precision::kFp32, /*deterministic=*/false);
  EXPECT_EQ(getenv(kName), nullptr);
  SetGpuModes(Precision::kFp32, /*deterministic=*/true);
  EXPECT_STREQ(getenv(kName), ":4096:8");
  setenv(kName, ":16:8", 1);
  SetGpuModes(Precision::kFp32, /*deterministic=*/true);
  EXPECT_STREQ(getenv(kName), ":16:8");
  unsetenv(kName);
  SetGpuModes(Precision::kFp32, /*deterministic=*/false);
}

TEST(SetGpuModes, SetsLibtorchsSwitches) {
  const at::Context& context = at::globalContext();
  for (const bool deterministic : {true, false}) {
    SetGpuModes(Precision::kFp32, deterministic);
    EXPECT_EQ(context.deterministicCuDNN(), deterministic);
    EXPECT_EQ(context.deterministicAlgorithms(), deterministic);
    EXPECT_EQ(context.benchmarkCuDNN(), !deterministic);
  }
  for (const Precision precision : {Precision::kTf32, Precision::kFp32}) {
    SetGpuModes(precision, /*deterministic=*/false);
    EXPECT_EQ(context.allowTF32CuBLAS(), precision == Precision::kTf32);
    EXPECT_EQ(context.allowTF32CuDNN(), precision == Precision::kTf32);
  }
}

TEST(PrecisionScope, ComputesInItAndNoLongerAfterwards) {
  const at::Tensor x = at::rand({8, 8});
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
  {
    const PrecisionScope scope(Precision::kBf16, at::kCPU);
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
  {
    const PrecisionScope scope(Precision::kFp32, at::kCPU);
    EXPECT_EQ(at::mm(x, x).scalar_type(), at::kFloat);
  }
}

// What it keeps of a weight must not outlive the weight's change.
TEST(PrecisionScope, SeesWeightsThatHaveChanged) {
  at::Tensor weight = at::rand({8, 8}).set_requires_grad(true);
  const at::Tensor x = at::rand({8, 8});
  at::Tensor sums[2];
  for (at::Tensor& sum : sums) {
    const PrecisionScope scope(Precision::kBf16, at::kCPU);
    sum = at::mm(x, weight).detach();
    weight.data().mul_(2);
  }
  EXPECT_TRUE(sums[1].equal(sums[0].mul(2)));
}

}  // namespace
}  // namespace psring
