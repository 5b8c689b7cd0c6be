// The real NCCL, where psring was built with CUDA: it loads without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ring/nccl/nccl_api.h"

namespace psring {
namespace {

TEST(NcclLibrary, HasAllThatIsCalledAndSaysItsVersion) {
  const absl::StatusOr<NcclApi> api = LoadNccl();
  if (absl::IsUnimplemented(api.status())) GTEST_SKIP() << api.status();
  ASSERT_TRUE(api.ok()) << api.status();
  int version = 0;
  EXPECT_EQ(api->version(&version), kNcclSuccess);
  EXPECT_GE(version, 22800) << NcclVersionName(version);
  EXPECT_NE(api->error_string(kNcclRemoteError), "");
}

}  // namespace
}  // namespace psring
