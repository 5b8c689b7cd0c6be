// `psring doctor` and `--version`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/findings.h"
#include "gpu/device.h"
#include "tests/testing/process.h"
#include "tests/testing/run_psring.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RenderFindings, AFaultComesWithItsRemedy) {
  const std::vector<Finding> findings = {
      {Finding::Kind::kGood, "ZeroMQ", "4.3.4", ""},
      {Finding::Kind::kAbsent, "CUDA", "no driver", ""},
      {Finding::Kind::kFault, "libtorch", "is gone", "./psring build"},
  };
  EXPECT_TRUE(HasFault(findings));
  EXPECT_EQ(RenderFindings(findings),
            "ok     ZeroMQ    4.3.4\n"
            "-      CUDA      no driver\n"
            "FAULT  libtorch  is gone\n"
            "                 remedy: ./psring build\n"
            "1 fault.\n");
}

TEST(RenderFindings, WhatIsAbsentAndNotNeededIsNoFault) {
  EXPECT_FALSE(HasFault({{Finding::Kind::kAbsent, "CUDA", "none", ""}}));
}

TEST(AboutTorch, WhatTheWorkerRunsWithIsGoodWhereverItWasBuilt) {
  const Libtorch torch = {"9.8.7", "13.0", "/opt/torch/lib"};
  const Finding finding = AboutTorch(torch, "/no/such/torch", "");
  EXPECT_EQ(finding.kind, Finding::Kind::kGood);
  EXPECT_EQ(finding.what, "9.8.7, CUDA 13.0, in /opt/torch/lib");
  EXPECT_EQ(AboutTorch(Libtorch{"9.8.7", "none", ""}, "/usr", "").what,
            "9.8.7, without CUDA");
}

TEST(AboutTorch, ItsPlaceExplainsWhyTheWorkerDoesNotRun) {
  const auto failed = absl::InternalError("worker ended with 127");
  const Finding gone = AboutTorch(failed, "/no/such/torch", "");
  EXPECT_EQ(gone.kind, Finding::Kind::kFault);
  EXPECT_EQ(gone.what,
            "was built with the one in /no/such/torch, which is gone");
  EXPECT_EQ(gone.remedy, "./psring build");
  EXPECT_EQ(AboutTorch(failed, "/usr", "").what, "worker ended with 127");
}

TEST(AboutTorch, InABundleTheUserBringsIt) {
  const auto failed = absl::InternalError("worker ended with 127");
  const Finding finding = AboutTorch(failed, "/no/such/torch", "9.8.7");
  EXPECT_EQ(finding.what, "worker ended with 127");
  EXPECT_THAT(finding.remedy, HasSubstr("pip install torch==9.8.7"));
  EXPECT_THAT(finding.remedy, HasSubstr("PSRING_TORCH"));
  const Libtorch other = {"9.8.6", "none", ""};
  EXPECT_THAT(AboutTorch(other, "", "9.8.7").what,
              HasSubstr("the bundle was built with 9.8.7"));
}

TEST(Doctor, NamesEverythingThatIsNeeded) {
  const Ran ran = RunPsring({"doctor"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("libtorch  9.8.7, CUDA 13.0, in /opt/torch/lib\n"));
  EXPECT_THAT(ran.output, ContainsRegex("ZeroMQ    [0-9.]+, with(out)? CURVE"));
  EXPECT_THAT(ran.output, ContainsRegex("protobuf  [0-9.]+"));
  EXPECT_THAT(ran.output, HasSubstr("CUDA"));
  EXPECT_THAT(ran.output, HasSubstr("NCCL"));
  EXPECT_THAT(ran.output, ContainsRegex("cores     [0-9]+"));
  EXPECT_THAT(ran.output, ContainsRegex("memory    [0-9.]+ GiB"));
  EXPECT_THAT(ran.output, HasSubstr("would advertise"));
}

TEST(Doctor, SaysWhichAddressAndWhy) {
  EXPECT_THAT(RunPsring({"doctor", "--advertise=127.0.0.3"}).output,
              HasSubstr("would advertise 127.0.0.3: --advertise"));
  EXPECT_THAT(RunPsring({"doctor", "--advertise=192.0.2.1"}).output,
              HasSubstr("192.0.2.1 is no address of this host"));
  EXPECT_THAT(RunPsring({"doctor", "--coordinator=127.0.0.1:7000"}).output,
              HasSubstr("would advertise 127.0.0.1: the route to 127.0.0.1"));
}

TEST(Doctor, ACoordinatorThatNobodyKnowsIsNotAMatterOfThisHostsAddress) {
  const Ran ran = RunPsring({"doctor", "--coordinator=no.such.host:7000"});
  EXPECT_THAT(ran.output, HasSubstr("cannot resolve host 'no.such.host'"));
  EXPECT_THAT(ran.output, HasSubstr("remedy: --coordinator=HOST:PORT"));
}

TEST(Doctor, AMissingProgramIsAFaultWithARemedy) {
  const Ran ran = RunPsring({"doctor", "--worker-binary=/no/such/worker"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("FAULT  libtorch  cannot start"));
  EXPECT_THAT(ran.output, HasSubstr("remedy: ./psring build"));
}

// The wheel's folders are these; ./psring build helps nobody there.
TEST(Doctor, TheWheelLacksNothing) {
  const std::filesystem::path package = testing::TestDirectory();
  for (const char* program : {"bin/cli/psring", "bin/ps/ps"}) {
    std::filesystem::create_directories((package / program).parent_path());
    std::filesystem::copy_file(PsringBinary(), package / program);
  }
  std::filesystem::create_directories(package / "lib");
  testing::WriteFile((package / "lib" / "libpsring.so").string(), "");
  const Ran ran =
      RunProcess({(package / "bin/cli/psring").string(), "doctor"}, Soon());
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("-      trainer   none in the wheel"));
  EXPECT_THAT(ran.output, Not(HasSubstr("FAULT")));
}

TEST(Doctor, AWrongInterfaceIsAFault) {
  const Ran ran = RunPsring({"doctor", "--interface=nosuch0"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("nosuch0"));
}

TEST(Doctor, TellsOfTheKey) {
  const std::string config = testing::TestDirectory();
  const std::string key = config + "/psring/key";
  const auto examine = [&] {
    return RunProcess({PsringBinary(), "doctor"}, Soon(),
                      ProcessOptions{.cwd = "",
                                     .env = {{"XDG_CONFIG_HOME", config},
                                             {"PSRING_KEY_FILE", ""},
                                             {"PSRING_INSECURE", ""}}});
  };
  EXPECT_THAT(examine().output,
              HasSubstr("-      key       none: jobs on several hosts need "
                        "psring keygen"));
  ASSERT_EQ(
      RunProcess({PsringBinary(), "keygen", "--key-file=" + key}, Soon()).code,
      0);
  EXPECT_THAT(examine().output, HasSubstr("ok     key       the key " + key));
  std::filesystem::permissions(key, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const Ran ran = examine();
  EXPECT_THAT(ran.output, ContainsRegex("FAULT  key  .*" + key));
  EXPECT_THAT(ran.output, HasSubstr("remedy: chmod"));
}

TEST(Version, NamesCommitAndLibraries) {
  const Ran ran = RunPsring({"--version"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, ContainsRegex("psring ([0-9a-f]{12}|unknown)"));
  EXPECT_THAT(ran.output, ContainsRegex("libtorch [0-9]+[.][0-9]+[.][0-9]+"));
  EXPECT_THAT(ran.output, ContainsRegex("ZeroMQ [0-9]+[.][0-9]+"));
  EXPECT_THAT(ran.output, ContainsRegex(BuiltWithCuda() ? "CUDA [0-9]+[.][0-9]"
                                                        : "CUDA none"));
}

}  // namespace
}  // namespace psring
