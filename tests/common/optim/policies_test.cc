#include "common/optim/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

proto::JobSpec Spec(proto::Mode mode, proto::Sync sync) {
  proto::JobSpec spec;
  spec.set_mode(mode);
  spec.set_sync(sync);
  return spec;
}

const proto::JobSpec kBsp = Spec(proto::PARAMETER_SERVER, proto::BSP);
const proto::JobSpec kSsp = Spec(proto::PARAMETER_SERVER, proto::SSP);
const proto::JobSpec kAsync = Spec(proto::PARAMETER_SERVER, proto::ASYNC);
const proto::JobSpec kRing = Spec(proto::RING, proto::BSP);

std::string ErrorOf(const proto::JobSpec& spec, int num_workers = 0) {
  return std::string(CheckPolicies(spec, num_workers).message());
}

TEST(Policies, EveryPlainModeIsLegal) {
  for (const proto::JobSpec& spec : {kBsp, kSsp, kAsync, kRing}) {
    EXPECT_EQ(ErrorOf(spec, 3), "");
  }
}

// Servers count with what a worker tells them.
TEST(Policies, NumbersOfAJobHaveBounds) {
  proto::JobSpec spec = kBsp;
  spec.mutable_optimizer()->mutable_schedule()->set_kind("step");
  EXPECT_THAT(ErrorOf(spec), HasSubstr("decay_every_steps is 0"));
  spec.set_decay_every_epochs(1);
  EXPECT_EQ(ErrorOf(spec), "");
  spec.set_decay_every_epochs(std::nan(""));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("decay_every_epochs is nan"));
  spec = kAsync;
  spec.set_dataset_size(int64_t{1} << 60);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("dataset_size"));
  spec = kRing;
  spec.set_first_step(-1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("first_step is -1"));
  spec = kBsp;
  spec.set_dataset_size(100);
  spec.mutable_first_cursor()->set_samples(100);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("first_cursor.samples is 100"));
}

TEST(Policies, DropLastLeavesABatchAtLeast) {
  proto::JobSpec spec = kBsp;
  spec.set_drop_last(true);
  spec.set_dataset_size(100);
  spec.set_batch_size(50);
  EXPECT_EQ(ErrorOf(spec, 2), "");
  EXPECT_THAT(ErrorOf(spec, 3),
              AllOf(HasSubstr("--drop-last leaves nothing"),
                    HasSubstr("34 samples"), HasSubstr("batch of 50")));
}

TEST(Policies, SyncBatchNormIsForWorkersInStep) {
  for (const proto::JobSpec& legal : {kBsp, kRing}) {
    proto::JobSpec spec = legal;
    spec.set_sync_batch_norm(true);
    EXPECT_EQ(ErrorOf(spec), "");
    spec.set_precision("bf16");
    EXPECT_EQ(ErrorOf(spec), "");
    spec.set_precision("fp16");
    EXPECT_THAT(ErrorOf(spec), HasSubstr("not for --precision=fp16"));
    spec.set_precision("");
    spec.set_local_steps(4);
    EXPECT_THAT(ErrorOf(spec), HasSubstr("not for --local-steps"));
    spec.set_local_steps(1);
    spec.add_slow("worker:1:x2");
    EXPECT_THAT(ErrorOf(spec), HasSubstr("not for --slow"));
  }
  for (const proto::JobSpec& wrong : {kSsp, kAsync}) {
    proto::JobSpec spec = wrong;
    spec.set_sync_batch_norm(true);
    EXPECT_THAT(ErrorOf(spec), HasSubstr("--sync-batch-norm"));
  }
  proto::JobSpec spec = kBsp;
  spec.set_sync_batch_norm(true);
  spec.set_backup_workers(1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("without --backup-workers"));
}

TEST(Policies, BackupWorkersAreForBspAndFewerThanTheWorkers) {
  proto::JobSpec spec = kBsp;
  spec.set_backup_workers(2);
  EXPECT_EQ(ErrorOf(spec), "");
  EXPECT_EQ(ErrorOf(spec, 3), "");
  EXPECT_THAT(ErrorOf(spec, 2),
              AllOf(HasSubstr("--backup-workers=2 of 2 workers"),
                    HasSubstr("from 0 to 1")));
  for (proto::JobSpec other : {kSsp, kAsync, kRing}) {
    other.set_backup_workers(1);
    EXPECT_THAT(ErrorOf(other),
                HasSubstr("--backup-workers is for --mode=ps --sync=bsp"));
  }
}

TEST(Policies, CuresOfStalenessAreForStaleModes) {
  for (proto::JobSpec spec : {kSsp, kAsync}) {
    spec.set_staleness_lr(true);
    spec.set_delay_compensation(0.04);
    EXPECT_EQ(ErrorOf(spec), "");
  }
  for (proto::JobSpec spec : {kBsp, kRing}) {
    spec.set_delay_compensation(0.04);
    EXPECT_THAT(ErrorOf(spec),
                HasSubstr("--delay-compensation is for --sync=ssp and async"));
    spec.set_staleness_lr(true);
    EXPECT_THAT(ErrorOf(spec),
                HasSubstr("--staleness-lr is for --sync=ssp and async"));
  }
  proto::JobSpec spec = kAsync;
  spec.set_delay_compensation(-1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("--delay-compensation must be 0"));
}

TEST(Policies, RecordingIsForModesInWhichChanceDecides) {
  proto::JobSpec backup = kBsp;
  backup.set_backup_workers(1);
  for (proto::JobSpec spec : {kSsp, kAsync, backup}) {
    spec.set_record_dir("/a");
    spec.set_replay_dir("/b");
    EXPECT_EQ(ErrorOf(spec), "");
  }
  for (proto::JobSpec spec : {kBsp, kRing}) {
    spec.set_replay_dir("/a");
    EXPECT_THAT(ErrorOf(spec),
                HasSubstr("--replay is for --sync=ssp and async"));
    spec.set_record_dir("/b");
    EXPECT_THAT(ErrorOf(spec),
                HasSubstr("--record is for --sync=ssp and async"));
  }
}

TEST(Policies, LocalStepsAreForSynchronousModes) {
  for (proto::JobSpec spec : {kBsp, kRing}) {
    spec.set_local_steps(4);
    EXPECT_EQ(ErrorOf(spec), "");
  }
  proto::JobSpec backup = kBsp;
  backup.set_backup_workers(1);
  for (proto::JobSpec spec : {kSsp, kAsync, backup}) {
    spec.set_local_steps(1);  // is none
    EXPECT_EQ(ErrorOf(spec), "");
    spec.set_local_steps(2);
    EXPECT_THAT(ErrorOf(spec), HasSubstr("--local-steps averages"));
  }
}

TEST(Policies, ClippingIsForEveryMode) {
  for (proto::JobSpec spec : {kBsp, kSsp, kAsync, kRing}) {
    spec.set_clip_norm(1);
    EXPECT_EQ(ErrorOf(spec), "");
    spec.set_clip_norm(-1);
    EXPECT_THAT(ErrorOf(spec), HasSubstr("--clip-norm"));
  }
}

TEST(Policies, CompressionIsForGradientsThatTheHostSums) {
  for (proto::JobSpec spec : {kBsp, kSsp, kAsync, kRing}) {
    for (const char* compress :
         {"", "none", "fp16", "bf16", "int8", "onebit", "topk:0.01"}) {
      spec.set_compress(compress);
      EXPECT_EQ(ErrorOf(spec), "");
    }
    spec.set_compress("gzip");
    EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("--compress"), HasSubstr("gzip"),
                                     HasSubstr("topk")));
  }
  proto::JobSpec spec = kRing;
  spec.set_compress("int8");
  spec.set_local_steps(4);
  EXPECT_THAT(ErrorOf(spec),
              AllOf(HasSubstr("--compress=int8"), HasSubstr("--local-steps")));
  spec.set_local_steps(1);
  spec.set_ring_backend("nccl");
  EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("--compress=int8"),
                                   HasSubstr("--ring-backend=host")));
}

}  // namespace
}  // namespace psring
