#include "client/ring_backend.h"

#include <gtest/gtest.h>

#include "tests/testing/captured_log.h"

namespace psring {
namespace {

absl::StatusOr<NcclApi> HasNccl() { return NcclApi(); }

proto::JobSpec Ring() {
  proto::JobSpec spec;
  spec.set_mode(proto::RING);
  spec.set_compress("none");
  return spec;
}

TEST(ChooseRingBackend, TakesNcclOnAGpuAndTheHostElsewhere) {
  proto::JobSpec spec = Ring();
  EXPECT_TRUE(ChooseRingBackend("auto", true, spec, HasNccl)->has_value());
  EXPECT_EQ(spec.ring_backend(), "nccl");
  EXPECT_FALSE(ChooseRingBackend("auto", false, spec, HasNccl)->has_value());
  EXPECT_EQ(spec.ring_backend(), "host");
}

TEST(ChooseRingBackend, SaysWhatNcclHasNot) {
  proto::JobSpec compressed = Ring();
  compressed.set_compress("int8");
  proto::JobSpec local = Ring();
  local.set_local_steps(4);
  CapturedLog log;
  EXPECT_FALSE(
      ChooseRingBackend("auto", true, compressed, HasNccl)->has_value());
  EXPECT_EQ(log.Count("NCCL has no --compress"), 1);
  EXPECT_FALSE(ChooseRingBackend("auto", true, local, HasNccl)->has_value());
  EXPECT_EQ(log.Count("NCCL has no --local-steps"), 1);
  EXPECT_EQ(local.ring_backend(), "host");
  EXPECT_FALSE(ChooseRingBackend("host", true, local, HasNccl)->has_value());
  EXPECT_FALSE(ChooseRingBackend("auto", false, local, HasNccl)->has_value());
  EXPECT_EQ(log.Count("NCCL has no"), 2);
}

}  // namespace
}  // namespace psring
