#include "client/ring_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/keys.h"
#include "ring/nccl/nccl_api.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  EXPECT_THAT(
      std::string(
          ChooseRingBackend("nccl", true, local, HasNccl).status().message()),
      AllOf(HasSubstr("--local-steps"), HasSubstr("--ring-backend=host")));
}

TEST(ReasonAgainstNccl, NamesWhoCannotAndWhoShares) {
  proto::Welcome job;
  for (int rank = 0; rank < 3; ++rank) {
    job.add_workers()->set_rank(rank);
    job.mutable_workers(rank)->set_host(rank < 2 ? "a" : "b");
  }
  const auto reason = [&](const std::vector<std::string>& gpus,
                          bool may_share = false) {
    return ReasonAgainstNccl(gpus, job, may_share);
  };
  EXPECT_EQ(reason({"0:1", "0:2", "0:1"}), "");  // on two hosts
  EXPECT_THAT(reason({"0:1", "0:1", "0:1"}),
              AllOf(HasSubstr("worker 0"), HasSubstr("worker 1"),
                    HasSubstr("the same GPU, 0:1, or slices of it")));
  EXPECT_EQ(reason({"0:1", "0:1", "0:1"}, /*may_share=*/true), "");
  EXPECT_THAT(reason({"0:1", "0:2", ""}, /*may_share=*/true),
              AllOf(HasSubstr("worker 2"), HasSubstr("cannot use NCCL")));
}

// What each of two workers ends with where the first has NCCL, and the second
// where `both` says so.
std::vector<std::string> Agreed(LocalJobOptions options, bool both,
                                bool must = false) {
  options.spec = SmallSpec(proto::RING, proto::BSP);
  options.num_workers = 2;
  std::vector<std::string> backends(2);
  const auto results =
      RunLocalJob(options, [&](LocalWorker& worker) -> absl::Status {
        proto::JobSpec spec = Ring();
        const bool has = worker.rank == 0 || both;
        auto nccl = ChooseRingBackend("auto", has, spec, HasNccl);
        if (!nccl.ok()) return nccl.status();
        const absl::Status agreed = AgreeOnNccl(
            *worker.job,
            {.gather = "g", .gpu = absl::StrCat(worker.rank), .must = must},
            Soon(), spec, *nccl);
        EXPECT_EQ(nccl->has_value(), spec.ring_backend() == "nccl");
        backends[worker.rank] = spec.ring_backend();
        return agreed;
      });
  for (const absl::Status& s : results) EXPECT_TRUE(s.ok()) << s;
  return backends;
}

TEST(AgreeOnNccl, AllTakeItOrNone) {
  using Backends = std::vector<std::string>;
  CapturedLog log;
  EXPECT_EQ(Agreed({}, /*both=*/true), Backends({"nccl", "nccl"}));
  EXPECT_EQ(log.Count("sums on the hosts"), 0);
  EXPECT_EQ(Agreed({}, /*both=*/false), Backends({"host", "host"}));
  EXPECT_EQ(log.Count("sums on the hosts, from GPU memory: worker 1"), 1);
  EXPECT_EQ(Agreed({}, /*both=*/false, /*must=*/true),
            Backends({"nccl", "host"}));
}

TEST(AgreeOnNccl, HostsSumWhereAllHasToBeEncryptedBetweenThem) {
  using Backends = std::vector<std::string>;
  LocalJobOptions options;
  options.secret = Secret::Random();
  options.require_encryption = true;
  EXPECT_EQ(Agreed(options, /*both=*/true), Backends({"nccl", "nccl"}));
  options.host_of = [](int index) { return absl::StrCat("host-", index); };
  CapturedLog log;
  EXPECT_EQ(Agreed(options, /*both=*/true), Backends({"host", "host"}));
  EXPECT_EQ(log.Count("--require-encryption, and NCCL does not encrypt"), 1);
}

TEST(ChooseHostSum, TakesNcclWhereServersTakeTheGradientsOfAllWorkers) {
  proto::JobSpec spec;
  spec.set_mode(proto::PARAMETER_SERVER);
  spec.set_sync(proto::BSP);
  const auto sums = [](const proto::JobSpec& job, bool on_gpu = true,
                       const std::string& wish = "auto") {
    return ChooseHostSum(wish, on_gpu, job, HasNccl).has_value();
  };
  EXPECT_TRUE(sums(spec));
  EXPECT_FALSE(sums(spec, /*on_gpu=*/false));
  EXPECT_FALSE(sums(spec, true, "off"));
  EXPECT_FALSE(sums(Ring()));
  for (void (*change)(proto::JobSpec&) : {
           +[](proto::JobSpec& job) { job.set_sync(proto::ASYNC); },
           +[](proto::JobSpec& job) { job.set_backup_workers(1); },
           +[](proto::JobSpec& job) { job.set_local_steps(4); },
           +[](proto::JobSpec& job) { job.set_record_dir("/tmp/r"); },
           +[](proto::JobSpec& job) { job.set_replay_dir("/tmp/r"); },
       }) {
    proto::JobSpec changed = spec;
    change(changed);
    EXPECT_FALSE(sums(changed)) << changed.ShortDebugString();
  }
}

TEST(ChooseHostSum, SaysWhyEachWorkerPushesItsOwn) {
  proto::JobSpec spec;
  spec.set_mode(proto::PARAMETER_SERVER);
  spec.set_sync(proto::BSP);
  CapturedLog log;
  EXPECT_FALSE(ChooseHostSum("auto", true, spec, [] {
                 return absl::StatusOr<NcclApi>(
                     absl::NotFoundError("there is no NCCL"));
               }).has_value());
  EXPECT_EQ(log.Count("pushes its own gradients: there is no NCCL"), 1);
}

// A job of two workers, on those hosts; this process is the first.
proto::Welcome JobOn(const std::string& first, const std::string& second) {
  proto::Welcome job;
  job.add_workers()->set_host(first);
  job.add_workers()->set_host(second);
  return job;
}

class NcclNetworkTest : public ::testing::Test {
 protected:
  NcclNetworkTest() { unsetenv(kInterface); }

  std::string interface() const {
    const char* value = std::getenv(kInterface);
    return value == nullptr ? "" : value;
  }

  static constexpr char kInterface[] = "NCCL_SOCKET_IFNAME";
  CapturedLog log_;
};

TEST_F(NcclNetworkTest, IsRefusedBetweenHostsWhereAllHasToBeEncrypted) {
  const NcclNetwork network = {.address = "127.0.0.1",
                               .protects_own = true,
                               .requires_encryption = true};
  const absl::Status status = PrepareNcclNetwork(JobOn("a", "b"), network);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("--require-encryption"),
                               ::testing::HasSubstr("--ring-backend=host")));
  EXPECT_EQ(interface(), "");
  EXPECT_TRUE(PrepareNcclNetwork(JobOn("a", "a"), network).ok());
  proto::Welcome twins = JobOn("a", "a");  // two machines made from one image
  twins.mutable_workers(1)->set_boot(1);
  EXPECT_FALSE(PrepareNcclNetwork(twins, network).ok());
}

TEST_F(NcclNetworkTest, IsTheInterfaceOfPsringsAddressAndIsSaidToBeOpen) {
  const NcclNetwork with_key = {.address = "127.0.0.1", .protects_own = true};
  ASSERT_TRUE(PrepareNcclNetwork(JobOn("a", "b"), with_key).ok());
  EXPECT_EQ(interface(), "=lo");
  EXPECT_EQ(log_.Count("does not encrypt what it sends between hosts, by lo"),
            1);
  const NcclNetwork without_key = {.address = "127.0.0.1"};
  ASSERT_TRUE(PrepareNcclNetwork(JobOn("a", "b"), without_key).ok());
  EXPECT_EQ(log_.Count("does not encrypt"), 1);
}

// PrepareNcclNetwork does not replace it.
TEST_F(NcclNetworkTest, IsTheLoopbackDeviceOnlyWhereAGpuIsSharedOnOneHost) {
  EXPECT_EQ(SharedGpuVariables(1, /*on_one_host=*/true)[kInterface], "lo");
  EXPECT_EQ(SharedGpuVariables(1, /*on_one_host=*/false).count(kInterface), 0);
}

TEST_F(NcclNetworkTest, IsNcclsChoiceWhereTheAddressIsNoInterfaces) {
  const NcclNetwork network = {.address = "192.0.2.1"};
  ASSERT_TRUE(PrepareNcclNetwork(JobOn("a", "b"), network).ok());
  EXPECT_EQ(interface(), "");
  EXPECT_EQ(log_.Count("set NCCL_SOCKET_IFNAME to choose"), 1);
}

}  // namespace
}  // namespace psring
