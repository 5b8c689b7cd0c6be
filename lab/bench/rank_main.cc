// One rank of `psring bench`: joins a job as a worker does and measures one
// operation at one size.
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
  if (flags.op == "gpu-allreduce") {
    return MakeGpuAllReduce(job, cancellation, flags.num_elements());
  }
  if (flags.op == "pushpull") {
    return MakePushPull(job, OptimizerOf(flags.optimizer));
  }
  if (flags.op == "copy") return MakeCopy(flags.num_elements());
  return MakeAllReduce(job, flags.num_elements());
}

// Tells whoever reads the servers' clocks from outside.
void Announce(RankJob& job, const char* what) {
  if (job.rank() != 0) return;
  std::puts(what);
  std::fflush(stdout);
}

absl::Status Iterate(const RankFlags& flags, RankJob& job,
                     Cancellation& cancellation) {
  auto operation = MakeOperation(flags, job, cancellation);
  if (!operation.ok()) return operation.status();
  Stopwatch stopwatch;
  for (int64_t i = 0; i < flags.warmup + flags.iterations; ++i) {
    const bool timed = i >= flags.warmup;
    absl::Status status = (*operation)->Prepare(i);
    if (i == flags.warmup) Announce(job, "measuring");
    if (!status.ok()) return status;
    const auto start = job.AwaitStart();
    if (!start.ok()) return start.status();
    if (timed) stopwatch.Start(*start);
    status = (*operation)->Run();
    if (timed) stopwatch.Stop();
    // What a rank does next takes a core from those that are still at it.
    absl::SleepFor(absl::Seconds(MonotonicSeconds() - *start));
    if (i + 1 == flags.warmup + flags.iterations) Announce(job, "measured");
    // Nor does anybody verify before all are done.
    if (status.ok())
      status = job.exchange().Synchronise(Before::kEvaluation, job.Deadline());
    if (status.ok()) status = (*operation)->Verify(i);
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
