// What goes wrong with NCCL; what goes right is communicator_test's.
#include "ring/nccl/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/local_job.h"
#include "tests/testing/nccl_job.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// For ranks that come at once, one after the other on a busy machine.
Time VerySoon() { return Now() + absl::Seconds(2); }

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

absl::Span<float> DataOn(FakeDevice& device, size_t num_elements) {
  float* data =
      static_cast<float*>(*device.Allocate(num_elements * sizeof(float)));
  return {data, num_elements};
}

// As the exchange does it: not waited for.
absl::Status EnqueueBucket(NcclCommunicator& c, absl::Span<float> data,
                           absl::Duration timeout = absl::Seconds(60)) {
  const absl::StatusOr<Event> ready = c.RecordReady();
  if (!ready.ok()) return ready.status();
  return c.EnqueueAllReduce(data, "allreduce of bucket 3, step 812", *ready,
                            timeout, [] { return absl::OkStatus(); });
}

TEST(NcclCommunicator, EndsWithoutAnAbortWhenAllRanksEnd) {
  NcclJob job(3);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    const absl::Span<float> data = DataOn(rank.device, 100);
    EXPECT_TRUE(c.AllReduce(data, 1.0f, Soon()).ok());
  });
  EXPECT_EQ(job.nccl().num_destroyed(), 3);
  EXPECT_EQ(job.nccl().num_aborts(), 0);
}

TEST(NcclCommunicator, ARankThatNeverComesIsNamed) {
  NcclJob job(3);
  job.Run([&](NcclRank& rank) {
    if (rank.rank == 1) return;
    const auto c = job.Connect(rank, VerySoon());
    EXPECT_EQ(c.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(c.status()),
                AllOf(HasSubstr("the start of NCCL"), HasSubstr("worker 1")));
  });
}

TEST(NcclCommunicator, AStartThatNeverEndsIsAborted) {
  NcclJob job(2);
  job.nccl().HangInit();
  job.Run([&](NcclRank& rank) {
    const auto c = job.Connect(rank, VerySoon());
    EXPECT_EQ(c.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(c.status()), AllOf(HasSubstr("the start of NCCL"),
                                           HasSubstr("not complete after"),
                                           HasSubstr("every worker waits")));
    EXPECT_FALSE(rank.cancellation.status().ok());
  });
  EXPECT_EQ(job.nccl().num_aborts(), 2);
}

TEST(NcclCommunicator, RefusesTwoRanksOnOneGpu) {
  NcclJob job(2);
  job.Run([&](NcclRank& rank) {
    FakeDevice first(0);
    const auto c = NcclCommunicator::Create(job.nccl().ApiOf(first), first,
                                            rank.cancellation, rank.job,
                                            rank.options, Soon());
    EXPECT_THAT(
        Message(c.status()),
        AllOf(HasSubstr("worker 0 (host h"), HasSubstr("worker 1 (host h"),
              HasSubstr("are on one GPU (0000:00:00.0)"),
              HasSubstr("--ring-backend=host"),
              HasSubstr("--allow-shared-gpu")));
  });
}

TEST(NcclCommunicator, TakesGpusOfOneNumberOnTwoMachinesOfOneName) {
  NcclJob job(2);
  job.Run([&](NcclRank& rank) {
    FakeDevice first(0);
    rank.job.mutable_workers(1)->set_boot(1);
    const auto c = NcclCommunicator::Create(job.nccl().ApiOf(first), first,
                                            rank.cancellation, rank.job,
                                            rank.options, Soon());
    EXPECT_TRUE(c.ok()) << c.status();
  });
}

TEST(NcclCommunicator, RefusesDifferentVersions) {
  NcclJob job(2);
  job.Run([&](NcclRank& rank) {
    NcclApi api = job.nccl().ApiOf(rank.device);
    if (rank.rank == 1) {
      api.version = [](int* version) {
        *version = 23203;
        return kNcclSuccess;
      };
    }
    const auto c = NcclCommunicator::Create(api, rank.device, rank.cancellation,
                                            rank.job, rank.options, Soon());
    EXPECT_THAT(Message(c.status()),
                AllOf(HasSubstr("2.28.3"), HasSubstr("2.32.3")));
  });
}

// NCCL says nothing on one host; the control plane does.
TEST(NcclCommunicator, ALostPeerEndsAllSurvivorsWithItsNameAndTheCollective) {
  NcclJob job(3);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    const absl::Span<float> data = DataOn(rank.device, 100);
    EXPECT_TRUE(EnqueueBucket(c, data).ok());
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 1 (host h)"));
    const absl::Status status = c.Drain(Soon());
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("allreduce of bucket 3, step 812"),
                      HasSubstr("lost worker 1 (host h)")));
    EXPECT_EQ(c.AllReduce(data, 1.0f, Soon()), status);
  });
  EXPECT_EQ(job.nccl().num_aborts(), 2);
}

TEST(NcclCommunicator, TheCpuOfACancelledProcessFindsTheStreamFree) {
  NcclJob job(2);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    EXPECT_TRUE(EnqueueBucket(c, DataOn(rank.device, 100)).ok());
    const Event event = *rank.device.CreateEvent();
    EXPECT_TRUE(rank.device.Record(event, c.stream()).ok());
    EXPECT_TRUE(rank.device.WaitFor(kComputeStream, event).ok());
    EXPECT_TRUE(rank.device.Record(event, kComputeStream).ok());
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 1"));
    // Without any further call: the watchdog's own thread aborts.
    EXPECT_TRUE(Await(rank.device, event, Soon(), Cancellation()).ok());
  });
}

TEST(NcclCommunicator, AnErrorOfNcclsEndsTheRankThatSeesIt) {
  NcclJob job(2);
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    EXPECT_TRUE(EnqueueBucket(c, DataOn(rank.device, 100)).ok());
    job.nccl().Break(0, kNcclRemoteError);
    const absl::Status status = c.Drain(Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("allreduce of bucket 3, step 812"),
                      HasSubstr("NCCL: result 6 (fake)")));
    EXPECT_EQ(rank.cancellation.status(), status);
  });
}

// Ranks that disagree hang in NCCL; nobody is missing.
TEST(NcclCommunicator, AMismatchEndsAtTheDeadline) {
  NcclJob job(2);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    const absl::Span<float> data = DataOn(rank.device, 100 + rank.rank);
    const absl::Status status = c.AllReduce(data, 1.0f, VerySoon());
    EXPECT_THAT(Message(status), AllOf(HasSubstr("allreduce of 10"),
                                       HasSubstr("every worker waits in it")));
  });
}

// It waits too, though its own time is not over.
TEST(NcclCommunicator, ARankThatCameLaterIsNotNamedForOneThatNeverComes) {
  NcclJob job(3);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 2) return;
    if (rank.rank == 0) absl::SleepFor(absl::Milliseconds(100));
    const absl::Duration timeout =
        rank.rank == 0 ? absl::Seconds(60) : absl::Milliseconds(300);
    const Time begin = Now();
    EXPECT_TRUE(EnqueueBucket(c, DataOn(rank.device, 100), timeout).ok());
    const std::string message = Message(c.Drain(Soon()));
    EXPECT_THAT(message, HasSubstr("in time: worker 2 (host h)"));
    EXPECT_LT(Now() - begin, absl::Seconds(30));
  });
}

// It comes while the others ask who is missing.
TEST(NcclCommunicator, ARankThatComesToALateCollectiveAtLastIsNamed) {
  NcclJob job(3);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 2) absl::SleepFor(absl::Seconds(2.5));
    const absl::Duration timeout = absl::Seconds(rank.rank == 2 ? 60 : 2);
    const absl::Span<float> other_sizes = DataOn(rank.device, 100 + rank.rank);
    absl::Status status = EnqueueBucket(c, other_sizes, timeout);
    if (status.ok()) status = c.Drain(Soon());
    EXPECT_THAT(Message(status), AllOf(HasSubstr("worker 2 (host h"),
                                       HasSubstr("has come to it late")));
  });
}

// A program that has queued more than some seconds of work ends well.
TEST(NcclCommunicator, TheEndWaitsForWhatIsOnItsWay) {
  NcclJob job(2);
  for (int r = 0; r < 2; ++r) {
    job.rank(r).options.watchdog.before_abort = [](const absl::Status& why) {
      ADD_FAILURE() << why;
    };
  }
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    const absl::Span<float> data = DataOn(rank.device, 16);
    rank.device.Enqueue(kComputeStream, [] {
      absl::SleepFor(absl::Seconds(4));
      return absl::OkStatus();
    });
    EXPECT_TRUE(EnqueueBucket(c, data).ok());
  });
  for (int r = 0; r < 2; ++r)
    EXPECT_TRUE(job.rank(r).cancellation.status().ok());
  EXPECT_EQ(job.nccl().num_aborts(), 0);
}

// What follows a sum in a stream must not see one that is not complete.
TEST(NcclCommunicator, AProgramIsToldBeforeAnAbortLetsItsStreamGoOn) {
  NcclJob job(2);
  std::atomic<int> calls = 0, gone_on = 0;
  for (int r = 0; r < 2; ++r) {
    job.rank(r).options.watchdog.before_abort = [&](const absl::Status& why) {
      EXPECT_THAT(Message(why), HasSubstr("lost worker 7"));
      absl::SleepFor(absl::Milliseconds(100));
      EXPECT_EQ(gone_on, 0);
      ++calls;
    };
  }
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    EXPECT_TRUE(EnqueueBucket(c, DataOn(rank.device, 100)).ok());
    rank.device.Enqueue(c.stream(), [&] {
      if (calls == 0) ++gone_on;
      return absl::OkStatus();
    });
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 7"));
    EXPECT_FALSE(c.Drain(Soon()).ok());
  });
  EXPECT_EQ(calls, 1);
}

// Nothing is on its way there.
TEST(NcclCommunicator, AnAbortThatEndsNoSumIsNotTold) {
  NcclJob job(2);
  for (int r = 0; r < 2; ++r) {
    job.rank(r).options.watchdog.before_abort = [](const absl::Status&) {
      ADD_FAILURE();
    };
  }
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    EXPECT_TRUE(c.Barrier(Soon()).ok());
    EXPECT_TRUE(c.Drain(Soon()).ok());
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 7"));
    EXPECT_FALSE(c.Look().ok());
  });
}

TEST(NcclCommunicator, AnAbortThatHangsCallsItsHandler) {
  NcclJob job(2);
  job.nccl().HangAborts();
  std::atomic<int> calls = 0;
  for (int r = 0; r < 2; ++r) {
    NcclWatchdogOptions& options = job.rank(r).options.watchdog;
    options.abort_timeout = absl::Milliseconds(50);
    options.on_hung_abort = [&](const absl::Status& why) {
      EXPECT_THAT(Message(why),
                  AllOf(HasSubstr("bucket 3"), HasSubstr("lost worker 7")));
      if (++calls == 2) job.nccl().Release();  // in the process's place
    };
  }
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    const absl::Span<float> data = DataOn(rank.device, 100 + rank.rank);
    EXPECT_TRUE(EnqueueBucket(c, data).ok());
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 7"));
    EXPECT_FALSE(c.Drain(Soon()).ok());
  });
  EXPECT_EQ(calls, 2);
}

TEST(NcclCommunicator, ALostPeerEndsARankWhoseDriverDoesNotAnswer) {
  NcclJob job(2);
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    EXPECT_TRUE(EnqueueBucket(c, DataOn(rank.device, 100)).ok());
    rank.device.HangQueries();
    rank.device.AwaitHungQuery();  // the watchdog's
    rank.cancellation.Cancel(absl::UnavailableError("lost worker 1"));
    const Time deadline = Soon();
    while (job.nccl().num_aborts() == 0 && Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_EQ(job.nccl().num_aborts(), 1);
    rank.device.Release();
  });
}

TEST(NcclCommunicator, ADriverThatDoesNotAnswerEndsTheProcess) {
  NcclJob job(2);
  job.nccl().HangAborts();
  std::atomic<int> calls = 0;
  NcclWatchdogOptions& options = job.rank(0).options.watchdog;
  options.abort_timeout = absl::Milliseconds(50);
  options.on_hung_abort = [&](const absl::Status& why) {
    EXPECT_THAT(Message(why),
                AllOf(HasSubstr("bucket 3"), HasSubstr("has not answered")));
    ++calls;
    job.rank(0).device.Release();  // in the process's place
    job.nccl().Release();
  };
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    if (rank.rank == 1) return;
    const absl::Span<float> data = DataOn(rank.device, 100);
    const absl::StatusOr<Event> ready = c.RecordReady();
    rank.device.HangQueries();
    EXPECT_FALSE(c.EnqueueAllReduce(data, "allreduce of bucket 3", *ready,
                                    absl::Milliseconds(100),
                                    [] { return absl::OkStatus(); })
                     .ok() &&
                 c.Drain(Soon()).ok());
  });
  EXPECT_EQ(calls, 1);
}

TEST(NcclCommunicatorDeathTest, AnAbortThatHangsEndsTheProcess) {
  EXPECT_EXIT(ExitOnHungAbort(absl::AbortedError("lost worker 7")),
              ::testing::ExitedWithCode(1), "");
}

TEST(NcclCommunicator, BuffersAreRegisteredByAllRanksOrByNone) {
  NcclJob job(2);
  job.RunConnected([&](NcclRank& rank, NcclCommunicator& c) {
    const absl::Span<float> data = DataOn(rank.device, 100);
    EXPECT_TRUE(c.RegisterBuffer(data.data(), 400, Soon()).ok());
    EXPECT_TRUE(c.Barrier(Soon()).ok());
    EXPECT_EQ(job.nccl().num_registered(), 2);
    job.nccl().RefuseBuffersOf(1);
    EXPECT_TRUE(c.Barrier(Soon()).ok());
    EXPECT_TRUE(c.RegisterBuffer(data.data(), 200, Soon()).ok());
    EXPECT_TRUE(c.Barrier(Soon()).ok());
    EXPECT_EQ(job.nccl().num_registered(), 2);
    EXPECT_TRUE(c.AllReduce(data, 1.0f, Soon()).ok());
  });
  EXPECT_EQ(job.nccl().num_registered(), 0);
}

TEST(NcclCommunicator, WaitsForTheComputeStreamAndGoesOnBesideIt) {
  NcclJob job(2);
  job.RunConnected([](NcclRank& rank, NcclCommunicator& c) {
    FakeDevice& device = rank.device;
    const absl::Span<float> data = DataOn(device, 16);
    const Event summed = *device.CreateEvent();
    device.Stall(kComputeStream);
    device.Enqueue(kComputeStream, [data, &rank] {
      data[0] = static_cast<float>(rank.rank + 1);
      return absl::OkStatus();
    });
    EXPECT_TRUE(EnqueueBucket(c, data).ok());
    EXPECT_TRUE(device.Record(summed, c.stream()).ok());
    EXPECT_EQ(Await(device, summed, Now() + absl::Milliseconds(100),
                    rank.cancellation)
                  .code(),
              absl::StatusCode::kDeadlineExceeded);
    device.Release();
    device.Stall(kComputeStream);  // comes too late to matter
    EXPECT_TRUE(c.Drain(Soon()).ok());
    EXPECT_EQ(data[0], 3.0f);
    device.Release();
  });
}

// The real control plane in place of the fake one.
TEST(NcclCommunicator, AProcessThatFailsIsNamedByTheCoordinator) {
  FakeNccl nccl;
  FakeDevice devices[] = {FakeDevice(0), FakeDevice(1)};
  LocalJobOptions options;
  options.spec = SmallSpec(proto::RING, proto::BSP);
  options.num_workers = 2;
  absl::Notification summed;  // by rank 0: a failure may overtake an answer
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    FakeDevice& device = devices[worker.rank];
    NcclOptions nccl_options;
    nccl_options.gather = [&](const std::string& name,
                              const std::string& payload, Time deadline) {
      return worker.member->Gather(name, payload, deadline);
    };
    auto connected = NcclCommunicator::Create(
        nccl.ApiOf(device), device, worker.cancellation, worker.client->job(),
        nccl_options, Soon());
    if (!connected.ok()) return connected.status();
    NcclCommunicator& c = **connected;
    const absl::Span<float> data = DataOn(device, 100);
    EXPECT_TRUE(c.AllReduce(data, 1.0f, Soon()).ok());
    EXPECT_TRUE(c.Gather("summed", "", Soon()).ok());
    if (worker.rank == 0) summed.Notify();
    if (worker.rank == 1) {
      summed.WaitForNotification();
      return worker.member->Leave(absl::InternalError("the disk is full"),
                                  Soon());
    }
    const absl::Status status = c.AllReduce(data, 1.0f, Soon());
    EXPECT_THAT(Message(status), AllOf(HasSubstr("worker 1 (host "),
                                       HasSubstr("the disk is full")));
    return status;
  };
  RunLocalJob(options, body);
}

}  // namespace
}  // namespace psring
