// Processes that do not fit together: who cannot belong is refused at once and
// the others train; who disagrees about the model ends the job, with both
// values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/membership.h"
#include "tests/integration/control_peer.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

// SmallTraining with `flag`, in place of what it says of it.
Flags With(const std::string& flag) {
  const std::string name = flag.substr(0, flag.find('=') + 1);
  Flags flags;
  for (const std::string& other : SmallTraining()) {
    if (!absl::StartsWith(other, name)) flags.push_back(other);
  }
  flags.push_back(flag);
  return flags;
}

void ExpectRefused(Process& process, const Flags& parts) {
  EXPECT_EQ(process.Wait(Soon()), 1) << process.Output();
  const std::string line = LastLine(process.Output());
  EXPECT_THAT(line, HasSubstr("refuses this process: "));
  for (const std::string& part : parts) EXPECT_THAT(line, HasSubstr(part));
}

struct Disagreement {
  std::string flag;
  std::string said;
};

// Both end at once, and say the same: who disagrees, in what, with both values.
void ExpectDisagreement(Process& one, Process& other, const std::string& said) {
  for (Process* process : {&one, &other}) {
    EXPECT_EQ(process->Wait(Soon()), 1) << process->Output();
    const std::string line = LastLine(process->Output());
    EXPECT_THAT(line, HasSubstr("worker 1 (host "));
    EXPECT_THAT(line, HasSubstr("does not agree with worker 0: "));
    EXPECT_THAT(line, HasSubstr(said));
  }
}

TEST(Mismatch, EndsTheJobAtOnceAndNamesTheOneWhoDisagrees) {
  const Disagreement kDisagreements[] = {
      {"--model=mlp:784-8-10",
       "model: \"mlp:784-8-10\" in worker 1, \"mlp:784-16-10\" in worker 0"},
      {"--lr=0.5", "optimizer.lr: 0.5 in worker 1, 0.01 in worker 0"},
      {"--optimizer=adam",
       "optimizer.name: \"adam\" in worker 1, \"sgd\" in worker 0"},
      {"--seed=7", "seed: 7 in worker 1, 0 in worker 0"},
      {"--batch-size=16", "batch_size: 16 in worker 1, 8 in worker 0"},
      {"--bucket-mb=1",
       "bucket_bytes: 1048576 in worker 1, 26214400 in worker 0"},
      {"--data=digits:train=128,test=64", "digits:train=128,test=64"},
  };
  for (const auto& [flag, said] : kDisagreements) {
    SCOPED_TRACE(flag);
    HandJob job({.mode = "ring"});
    Process& first = job.Start("worker 0");
    AwaitFirstRingWorker(job.port());
    ExpectDisagreement(first, job.Start("worker 1", With(flag)), said);
  }
}

// In one pixel of data sets that are alike else.
TEST(Mismatch, OfTheContentsOfFilesEndsTheJob) {
  const std::string ours = testing::TestDirectory("-ours");
  const std::string theirs = testing::TestDirectory("-theirs");
  testing::WriteTinyMnist(ours);
  testing::WriteTinyMnist(theirs);
  const std::string images = "/train-images-idx3-ubyte";
  std::string bytes = testing::ReadFile(theirs + images);
  ++bytes.back();
  testing::WriteFile(theirs + images, bytes);
  HandJob job({.mode = "ring"});
  Flags flags = {"--model=mlp:6-10", "--batch-size=1", "--steps=4",
                 "--data=mnist:" + ours};
  Process& first = job.Start("worker 0", flags);
  AwaitFirstRingWorker(job.port());
  flags.back() = "--data=mnist:" + theirs;
  ExpectDisagreement(first, job.Start("worker 1", flags),
                     "data: \"mnist,crc32=");
}

TEST(Mismatch, OfModeIsRefusedAtTheWorkerOfTheOtherMode) {
  HandJob ps({.mode = "ps"});
  ps.Start("ps 0");
  const Ran worker =
      RunProcess({WorkerBinary(), "--mode=ring", "--rank=1", "--workers=2",
                  "--coordinator=" + ps.address(), "--data=digits:train=8"},
                 Soon());
  EXPECT_EQ(worker.code, 1) << worker.output;
  EXPECT_THAT(LastLine(worker.output),
              HasSubstr("mode: ring here, ps in the job"));
  HandJob ring({.mode = "ring"});
  ring.Start("worker 0");
  const Ran server =
      RunProcess({PsBinary(), "--coordinator=" + ring.address()}, Soon());
  EXPECT_EQ(server.code, 1) << server.output;
  EXPECT_THAT(LastLine(server.output),
              HasSubstr("mode: ps here, ring in the job"));
}

TEST(Mismatch, OfSyncEndsTheJobForServersToo) {
  HandJob job({});
  Process& server = job.Start("ps 0");
  Process& first = job.Start("worker 0", With("--sync=bsp"));
  Process& second = job.Start("worker 1", With("--sync=async"));
  ExpectDisagreement(first, second, "ASYNC");
  EXPECT_EQ(server.Wait(Soon()), 1) << server.Output();
  EXPECT_THAT(LastLine(server.Output()), HasSubstr("does not agree with"));
}

TEST(Mismatch, OfTheJobsSizeIsRefused) {
  HandJob job({.mode = "ring"});
  job.Start("worker 0");
  Flags flags = SmallTraining();
  flags.push_back("--workers=3");
  ExpectRefused(job.Start("worker 1", flags),
                {"workers: 3 here, 2 in the job"});
}

TEST(Mismatch, OfTheProtocolIsRefusedAndTheJobGoesOn) {
  HandJob job({.mode = "ring"});
  job.Start("worker 0");
  proto::Join join;
  join.set_protocol_version(kProtocolVersion + 1);
  join.set_role(proto::WORKER);
  join.set_wanted_rank(1);
  EXPECT_THAT(RefusalOf(job.port(), join),
              HasSubstr(absl::StrCat("protocol version: ", kProtocolVersion + 1,
                                     " here, ", kProtocolVersion,
                                     " in the job. Run the same build")));
  job.Start("worker 1");
  job.ExpectAllEndWell();
}

}  // namespace
}  // namespace psring
