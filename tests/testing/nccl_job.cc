#include "tests/testing/nccl_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

GatherFunction FakeGather::Of(int rank, const Cancellation& cancellation) {
  return
      [this, rank, &cancellation](const std::string& name,
                                  const std::string& payload, Time deadline) {
        return Gather(rank, cancellation, name, payload, deadline);
      };
}

absl::StatusOr<std::vector<std::string>> FakeGather::Gather(
    int rank, const Cancellation& cancellation, const std::string& name,
    const std::string& payload, Time deadline) {
  MutexLock lock(&mutex_);
  std::map<int, std::string>& all = contributions_[name];
  EXPECT_TRUE(all.emplace(rank, payload).second)
      << "rank " << rank << " gathers '" << name << "' twice";
  const auto complete = [&] {
    return static_cast<int>(all.size()) == num_ranks_;
  };
  while (!complete()) {
    if (absl::Status why = cancellation.status(); !why.ok()) return why;
    if (Now() >= deadline) {
      std::string missing;
      for (int r = 0; r < num_ranks_; ++r) {
        if (!all.contains(r)) absl::StrAppend(&missing, " worker ", r);
      }
      return absl::DeadlineExceededError(
          absl::StrCat("not at '", name, "' in time:", missing, " (host h)"));
    }
    mutex_.AwaitUntil(complete,
                      std::min(deadline, Now() + absl::Milliseconds(5)));
  }
  std::vector<std::string> payloads;
  for (const auto& [r, p] : all) payloads.push_back(p);
  return payloads;
}

void FakeGather::TellLate(int64_t sequence) {
  MutexLock lock(&mutex_);
  for (int r = 0; r < num_ranks_; ++r) late_[r] = sequence;
}

std::optional<int64_t> FakeGather::ToldLate(int rank) {
  MutexLock lock(&mutex_);
  const auto told = late_.extract(rank);
  return told.empty() ? std::nullopt : std::optional(told.mapped());
}

NcclJob::NcclJob(int num_ranks, const proto::JobSpec& spec)
    : gather_(num_ranks) {
  proto::Welcome job;
  job.set_job_epoch(99);
  *job.mutable_spec() = spec;
  for (int r = 0; r < num_ranks; ++r) {
    proto::Process* process = job.add_workers();
    process->set_role(proto::WORKER);
    process->set_rank(r);
    process->set_host("h");
    process->set_pid(4711 + r);
  }
  for (int r = 0; r < num_ranks; ++r) {
    ranks_.push_back(std::make_unique<NcclRank>(r));
    NcclRank& rank = *ranks_.back();
    rank.job = job;
    rank.job.set_rank(r);
    rank.options.gather = gather_.Of(r, rank.cancellation);
    rank.options.watchdog.tell_late = [this](int64_t sequence) {
      gather_.TellLate(sequence);
    };
    rank.options.watchdog.told_late = [this, r] { return gather_.ToldLate(r); };
    rank.options.watchdog.period = absl::Milliseconds(5);
    rank.options.watchdog.culprit_grace = absl::Milliseconds(50);
  }
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclJob::Connect(
    NcclRank& rank, Time deadline) {
  return NcclCommunicator::Create(nccl_.ApiOf(rank.device), rank.device,
                                  rank.cancellation, rank.job, rank.options,
                                  deadline);
}

void NcclJob::Run(const std::function<void(NcclRank&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks_) {
    threads.emplace_back([&] { body(*rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

void NcclJob::RunConnected(
    const std::function<void(NcclRank&, NcclCommunicator&)>& body) {
  Run([&](NcclRank& rank) {
    auto communicator = Connect(rank, Now() + absl::Seconds(60));
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    if (communicator.ok()) body(rank, **communicator);
    AwaitAll();
  });
}

void NcclJob::AwaitAll() {
  MutexLock lock(&mutex_);
  ++arrived_;
  mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return arrived_ == static_cast<int>(ranks_.size());
  });
}

}  // namespace psring
