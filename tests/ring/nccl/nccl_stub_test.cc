#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ring/nccl/nccl_api.h"

namespace psring {
namespace {

TEST(NcclStub, SaysWhatIsMissingAndWhatToDo) {
  const absl::StatusOr<NcclApi> api = LoadNccl();
  EXPECT_EQ(api.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(api.status().message()),
              ::testing::AllOf(::testing::HasSubstr("built without CUDA"),
                               ::testing::HasSubstr("nccl.h"),
                               ::testing::HasSubstr("./psring build")));
}

TEST(NcclVersionName, IsWhatNcclCallsItself) {
  EXPECT_EQ(NcclVersionName(23203), "2.32.3");
  EXPECT_EQ(NcclVersionName(22803), "2.28.3");
}

}  // namespace
}  // namespace psring
