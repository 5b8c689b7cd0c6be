// One rank of `psring bench`: joins a job as a worker does and measures one
// operation at one size.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/command_line.h"
#include "common/process/process_main.h"
#include "lab/bench/link.h"
#include "lab/bench/operation.h"
#include "lab/bench/rank_job.h"
#include "lab/bench/stopwatch.h"

namespace psring {
namespace {

struct RankFlags {
  ProcessFlags process;
  std::string op = "allreduce";
  int64_t size_bytes = 4;
  int64_t iterations = 20;
  int64_t warmup = 3;
  int64_t batch = 1;
  std::string optimizer = "sgd";
  std::string out = ".";

  void AddTo(CommandLine& line);
  int64_t num_elements() const {
    return size_bytes / static_cast<int64_t>(sizeof(float));
  }
};

void RankFlags::AddTo(CommandLine& line) {
  line.Add("--mode", process.mode, "Topology").OneOf({"ps", "ring"});
  line.Add("--op", op, "What to measure")
      .OneOf({"allreduce", "gpu-allreduce", "pushpull", "copy", "link"});
  line.Add("--size", size_bytes, "Bytes of each rank's buffer")
      .Range(int64_t{4}, int64_t{1} << 40);
  line.Add("--iterations", iterations, "That are timed")
      .Range(int64_t{1}, int64_t{1} << 40);
  line.Add("--warmup", warmup, "Iterations before them")
      .Range(int64_t{0}, int64_t{1} << 40);
  line.Add("--batch", batch,
           "Iterations back to back, on buffers that are written anew only "
           "before the first of them")
      .Range(int64_t{1}, int64_t{1} << 40);
  line.Add("--optimizer", optimizer, "The servers' (pushpull)")
      .OneOf({"sgd", "momentum"});
  line.Add("--out", out, "Folder for the times");
  process.AddTo(line);
}

// Its factors are powers of two: updates round as little as they can.
proto::OptimizerSettings OptimizerOf(const std::string& name) {
  proto::OptimizerSettings settings;
  settings.set_name(name);
  settings.set_lr(0.125);
  settings.set_momentum(name == "momentum" ? 0.5 : 0.0);
  settings.mutable_schedule()->set_kind("constant");
  return settings;
}

absl::StatusOr<std::unique_ptr<Operation>> MakeOperation(
    const RankFlags& flags, RankJob& job, Cancellation& cancellation) {
  if (flags.op == "gpu-allreduce") {  // NCCL's alone: a mean scales afterwards
    return MakeGpuAllReduce(job, cancellation, flags.num_elements(), 1.0f);
  }
  // Run after run, a mean would not be exact for every number of ranks.
  const float scale =
      flags.batch == 1 ? 1.0f / static_cast<float>(job.num_ranks()) : 1.0f;
  if (flags.op == "pushpull") {
    return MakePushPull(job, OptimizerOf(flags.optimizer));
  }
  if (flags.op == "copy") return MakeCopy(flags.num_elements());
  return MakeAllReduce(job, flags.num_elements(), scale);
}

// Tells whoever reads the servers' clocks from outside.
void Announce(RankJob& job, const char* what) {
  if (job.rank() != 0) return;
  std::puts(what);
  std::fflush(stdout);
}

// A common start, so many runs and a rest. `stopwatch` may be null.
absl::Status RunBatch(int64_t runs, RankJob& job, Operation& operation,
                      Stopwatch* stopwatch) {
  const auto start = job.AwaitStart();
  if (!start.ok()) return start.status();
  double begin = *start;
  for (int64_t run = 0; run < runs; ++run) {
    if (stopwatch != nullptr) stopwatch->Start(begin);
    if (absl::Status s = operation.Run(); !s.ok()) return s;
    if (stopwatch != nullptr) stopwatch->Stop();
    begin = MonotonicSeconds();
  }
  // What a rank does next takes a core from those that are still at it.
  absl::SleepFor(absl::Seconds(begin - *start));
  return absl::OkStatus();
}

absl::Status Iterate(const RankFlags& flags, RankJob& job,
                     Cancellation& cancellation) {
  auto operation = MakeOperation(flags, job, cancellation);
  if (!operation.ok()) return operation.status();
  Stopwatch stopwatch;
  const int64_t all = flags.warmup + flags.iterations;
  int64_t runs = 0;
  for (int64_t i = 0; i < all; i += runs) {
    const bool timed = i >= flags.warmup;
    runs = std::min(flags.batch, (timed ? all : flags.warmup) - i);
    absl::Status status = (*operation)->Prepare(i);
    if (i == flags.warmup) Announce(job, "measuring");
    if (!status.ok()) return status;
    status = RunBatch(runs, job, **operation, timed ? &stopwatch : nullptr);
    if (i + runs == all) Announce(job, "measured");
    // Nor does anybody verify before all are done.
    if (status.ok())
      status = job.exchange().Synchronise(Before::kEvaluation, job.Deadline());
    if (status.ok()) status = (*operation)->Verify(i, runs);
    if (!status.ok()) return status;
  }
  if (absl::Status s = stopwatch.Write(flags.out, job.rank()); !s.ok()) {
    return s;
  }
  return job.exchange().Synchronise(Before::kEvaluation, job.Deadline());
}

absl::Status Run(const RankFlags& flags, Cancellation& cancellation) {
  auto cluster = flags.process.Cluster(/*is_ps_process=*/false);
  if (!cluster.ok()) return cluster.status();
  const bool buffers = flags.op != "copy" && flags.op != "link";
  auto job = RankJob::Join(
      {.cluster = *cluster,
       .same_host = flags.process.SameHostWish(),
       .ring = {},
       .step_timeout = flags.process.step_timeout(),
       .name = absl::StrCat("bench ", flags.op, " ", flags.size_bytes),
       .num_elements = buffers ? flags.num_elements() : 1,
       .num_steps = flags.warmup + flags.iterations,
       .optimizer = OptimizerOf(flags.optimizer)},
      cancellation);
  if (!job.ok()) return job.status();
  const absl::Status status =
      flags.op == "link"
          ? MeasureLinks(**job, {.windows = static_cast<int>(flags.iterations),
                                 .out = flags.out})
          : Iterate(flags, **job, cancellation);
  return (*job)->Leave(status);
}

}  // namespace
}  // namespace psring

int main(int argc, char** argv) {
  using namespace psring;
  CommandLine line("One rank of a benchmark.", "psring bench rank");
  RankFlags flags;
  flags.AddTo(line);
  return ProcessMain(
      line, flags.process, argc, argv,
      [&](Cancellation& cancellation) { return Run(flags, cancellation); });
}
