#include "common/optim/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/layout.h"

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

// One of a newer build may be.
TEST(Policies, APolicyThatIsNotKnownIsRefused) {
  const proto::JobSpec spec =
      Spec(proto::PARAMETER_SERVER, static_cast<proto::Sync>(9));
  EXPECT_THAT(ErrorOf(spec),
              AllOf(HasSubstr("consistency policy, number 9"),
                    HasSubstr("start all with one build of psring")));
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
  spec.set_decay_every_epochs(1);
  spec.mutable_optimizer()->mutable_schedule()->set_decay_factor(-0.5);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("decay_factor is -0.5"));
  spec = kBsp;
  spec.set_warmup_epochs(-1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("warmup_epochs is -1"));
  for (const char* name :
       {"dataset_size", "batch_size", "epochs", "steps", "first_step",
        "first_updates", "staleness", "local_steps"}) {
    for (const int64_t value : {int64_t{-1}, (int64_t{1} << 60) + 1}) {
      spec = kRing;
      spec.GetReflection()->SetInt64(
          &spec, spec.GetDescriptor()->FindFieldByName(name), value);
      EXPECT_THAT(ErrorOf(spec), HasSubstr(absl::StrCat(name, " is ", value)));
    }
  }
  spec = kBsp;
  spec.set_dataset_size(100);
  spec.mutable_first_cursor()->set_samples(100);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("first_cursor.samples is 100"));
  spec.mutable_first_cursor()->set_samples(99);
  spec.mutable_first_cursor()->set_epoch(-1);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("first_cursor.epoch is -1"));
}

// Of a script's optimizer, which steps on the workers.
TEST(Policies, LocalUpdatesAreForWorkersInStep) {
  for (proto::JobSpec spec : {kBsp, kRing}) {
    spec.set_mean_only(true);
    EXPECT_EQ(ErrorOf(spec), "");
  }
  proto::JobSpec backup = kBsp;
  backup.set_backup_workers(1);
  for (proto::JobSpec spec : {kSsp, kAsync, backup}) {
    spec.set_mean_only(true);
    EXPECT_THAT(ErrorOf(spec), AllOf(HasSubstr("update=\"local\""),
                                     HasSubstr("use update=\"fused\"")));
  }
}

TEST(Policies, EveryTensorIsOfAGroupOfTheSameOptimizer) {
  proto::JobSpec good = kBsp;
  good.mutable_optimizer()->set_name("adam");
  for (int i = 0; i < 2; ++i) {
    good.add_tensors();
    good.add_groups()->set_name("adam");
    good.add_tensor_groups(i);
  }
  EXPECT_EQ(ErrorOf(good), "");
  proto::JobSpec spec = good;
  spec.add_tensors();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("groups are given for 2 of 3 tensors"));
  for (const int group : {-1, 2}) {
    spec = good;
    spec.set_tensor_groups(1, group);
    EXPECT_THAT(ErrorOf(spec),
                HasSubstr(absl::StrCat("a tensor of group ", group, " of 2")));
  }
  spec = good;
  spec.mutable_groups(1)->set_name("sgd");
  EXPECT_THAT(ErrorOf(spec), HasSubstr("different optimizers: adam and sgd"));
  spec = good;
  while (spec.groups_size() < kMaxGroups) *spec.add_groups() = good.groups(0);
  EXPECT_EQ(ErrorOf(spec), "");
  *spec.add_groups() = good.groups(0);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("65 groups of tensors: at most 64"));
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
  spec.set_backup_workers(-1);
  EXPECT_THAT(ErrorOf(spec, 3), HasSubstr("--backup-workers=-1 of 3 workers"));
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
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
    spec.set_delay_compensation(wrong);
    EXPECT_THAT(ErrorOf(spec), HasSubstr("--delay-compensation must be 0"));
  }
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
    for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
      spec.set_clip_norm(wrong);
      EXPECT_THAT(ErrorOf(spec), HasSubstr("--clip-norm"));
    }
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
