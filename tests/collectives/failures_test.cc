// What goes wrong with collectives, and what ranks are told of it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/call.h"
#include "collectives/collectives.h"
#include "collectives/message.h"
#include "collectives/outbox.h"
#include "collectives/stall_check.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/net/keys.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"
#include "tests/collectives/test_mesh.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using proto::CollectiveCall;
using proto::CollectiveHeader;
using Handle = absl::StatusOr<int64_t>;

constexpr Arithmetic kFloats{DType::kFloat32, Reduction::kSum};

// What `from` has told `to` has arrived.
void AwaitWord(TestMesh& mesh, int from, int to) {
  const std::vector<int32_t> pair = {std::min(from, to), std::max(from, to)};
  const auto one = mesh.at(from).Barrier("word", pair);
  const auto two = mesh.at(to).Barrier("word", pair);
  EXPECT_EQ(Await(mesh.at(from), one), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(to), two), absl::OkStatus());
}

// It fails with `expected`, whichever rank says so.
void ExpectSaid(const absl::Status& status, const std::string& expected) {
  EXPECT_TRUE(absl::EndsWith(status.message(), expected)) << status;
}

// Every rank makes its call, and has to fail with `expected` long before its
// timeout. The first rank's is heard first: others would not wait for it for
// long, and would name each other.
void ExpectMismatch(
    TestMesh& mesh, const std::string& expected,
    const std::function<Handle(int rank, Collectives&, void* memory)>& call) {
  std::vector<std::vector<char>> memory(mesh.size());
  std::vector<Handle> handles;
  const Time start = Now();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    memory[rank].resize(1 << 20);
    handles.push_back(call(rank, mesh.at(rank), memory[rank].data()));
    for (int to = 1; rank == 0 && to < mesh.size(); ++to) {
      AwaitWord(mesh, 0, to);
    }
  }
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const absl::Status status = Await(mesh.at(rank), handles[rank]);
    EXPECT_EQ(status.message(), expected) << "rank " << rank;
  }
  EXPECT_LT(Now() - start, absl::Seconds(20));
}

TEST(CollectiveMismatchTest, NamesBothRanksAndBothSides) {
  TestMesh mesh(3);
  ExpectMismatch(
      mesh,
      "allreduce 'loss': rank 0 brings 10 float32, rank 2 brings 12 float32",
      [](int rank, Collectives& c, void* m) {
        return c.AllReduce("loss", m, m, rank == 2 ? 12 : 10, kFloats);
      });
  ExpectMismatch(mesh,
                 "allreduce 'loss': rank 0 brings 100000 float32, rank 1 "
                 "brings 100000 int32",
                 [](int rank, Collectives& c, void* m) {
                   return c.AllReduce(
                       "loss", m, m, 100'000,
                       {rank == 1 ? DType::kInt32 : DType::kFloat32});
                 });
  ExpectMismatch(
      mesh, "allreduce 'loss': rank 0 wants max, rank 2 wants sum",
      [](int rank, Collectives& c, void* m) {
        return c.AllReduce(
            "loss", m, m, 1,
            {DType::kInt8, rank == 2 ? Reduction::kSum : Reduction::kMax});
      });
  ExpectMismatch(mesh,
                 "allreduce 'loss': rank 0 multiplies by 1 before and 1 after, "
                 "rank 1 multiplies by 1 before and 0.5 after",
                 [](int rank, Collectives& c, void* m) {
                   return c.AllReduce("loss", m, m, 1,
                                      {DType::kFloat32, Reduction::kSum, 1,
                                       rank == 1 ? 0.5 : 1});
                 });
  ExpectMismatch(mesh,
                 "broadcast 'w': rank 0 names root 0, rank 2 names root 1",
                 [](int rank, Collectives& c, void* m) {
                   return c.Broadcast("w", m, 4, rank == 2 ? 1 : 0);
                 });
  ExpectMismatch(mesh, "allgather 'g': rank 0 brings 'a', rank 1 brings 'b'",
                 [](int rank, Collectives& c, void* m) {
                   return c.AllGather("g", m, 4, rank == 1 ? "b" : "a");
                 });
  ExpectMismatch(
      mesh,
      "reducescatter 's': rank 0 wants counts [1,2,3], rank 2 wants counts "
      "[3,2,1]",
      [](int rank, Collectives& c, void* m) {
        const std::vector<int64_t> up = {1, 2, 3}, down = {3, 2, 1};
        return c.ReduceScatter("s", m, static_cast<char*>(m) + 100,
                               rank == 2 ? down : up, kFloats);
      });
  ExpectMismatch(mesh, "'x': rank 0 calls barrier, rank 2 calls allgather",
                 [](int rank, Collectives& c, void* m) {
                   if (rank == 2) return c.AllGather("x", m, 4);
                   return c.Barrier("x");
                 });
  // What failed has left all ranks together.
  mesh.Run([](int rank, Collectives& c) {
    for (const char* name : {"loss", "x", "w"}) {
      EXPECT_EQ(Await(c, c.Barrier(name)), absl::OkStatus()) << name;
    }
  });
}

TEST(CollectiveMismatchTest, IsNoticedWithoutTheFirstRank) {
  TestMesh mesh(3);
  std::vector<float> data(12);
  const auto one = mesh.at(1).AllReduce("x", &data[0], &data[0], 1, kFloats);
  const auto two = mesh.at(2).AllReduce("x", &data[4], &data[4], 2, kFloats);
  const std::string expected =
      "allreduce 'x': rank 1 brings 1 float32, rank 2 brings 2 float32";
  EXPECT_EQ(Await(mesh.at(1), one).message(), expected);
  EXPECT_EQ(Await(mesh.at(2), two).message(), expected);
  AwaitWord(mesh, 1, 0);  // it is late; either may have told it
  AwaitWord(mesh, 2, 0);
  EXPECT_EQ(Await(mesh.at(0),
                  mesh.at(0).AllReduce("x", &data[8], &data[8], 1, kFloats))
                .message(),
            expected);
}

// Each rank's other thread waits for what the other's main thread calls once it
// has done something else.
TEST(CollectiveStallTest, IsNotTwoThreadsARankThatWaitForEachOthers) {
  TestMesh mesh(2, {}, /*own_threads=*/true);
  mesh.Run([](int rank, Collectives& c) {
    std::thread writes([&] {
      if (rank == 1) absl::SleepFor(absl::Seconds(5));
      EXPECT_EQ(Await(c, c.Barrier("written")), absl::OkStatus());
    });
    if (rank == 0) absl::SleepFor(absl::Seconds(5));
    EXPECT_EQ(Await(c, c.Barrier("evaluated")), absl::OkStatus());
    writes.join();
  });
}

TEST(CollectiveStallTest, IsFoundBetweenRanksThatWaitForEachOther) {
  TestMesh mesh(3, {}, /*own_threads=*/true);
  const Time start = Now();
  mesh.Run([](int rank, Collectives& c) {
    float value = 0;
    const absl::Status status =
        Await(c, rank == 1 ? c.Barrier("b")
                           : c.AllReduce("a", &value, &value, 1, kFloats));
    EXPECT_TRUE(
        absl::StrContains(status.message(), "rank 1 waits for barrier 'b'"))
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), " waits for allreduce 'a'"))
        << status;
    EXPECT_TRUE(absl::EndsWith(status.message(),
                               ": all ranks must call the same operations, "
                               "equally often. A rank that has no more "
                               "batches calls join()"));
  });
  EXPECT_LT(Now() - start, absl::Seconds(30));  // half the timeout
}

// As within DistributedDataParallel's backward(): the main threads wait for
// those that wait here.
TEST(CollectiveStallTest, IsFoundInWhateverThreadsWhereCallsHaveAnOrder) {
  TestMesh mesh(2, {}, /*own_threads=*/true);
  const Time start = Now();
  mesh.Run([](int rank, Collectives& c) {
    const Handle call = c.Barrier(rank == 0 ? "gradients" : "epoch");
    ASSERT_EQ(c.SetOrder(*call, "group"), absl::OkStatus());
    std::thread waits([&] {
      EXPECT_EQ(Await(c, call).message(),
                "rank 0 waits for barrier 'gradients', rank 1 waits for "
                "barrier 'epoch': all ranks must call the same operations, "
                "equally often. A rank that has no more batches calls join()");
    });
    waits.join();
  });
  EXPECT_LT(Now() - start, absl::Seconds(30));  // half the timeout
}

// The main thread of rank 0 calls x, and y seconds later, that of rank 1 the
// other way round; other threads wait for what is called first.
TEST(CollectiveStallTest, IsNotOneOfCallsOfDifferentOrdersOrOfOtherThreads) {
  TestMesh mesh(2, {}, /*own_threads=*/true);
  mesh.Run([](int rank, Collectives& c) {
    for (const bool marked_by_main : {true, false}) {
      const Handle first = c.Barrier(rank == 0 ? "x" : "y");
      const auto mark = [&] {
        const bool same = !marked_by_main;
        EXPECT_EQ(c.SetOrder(*first, same || rank == 0 ? "a" : "b"),
                  absl::OkStatus());
      };
      if (marked_by_main) mark();
      std::thread waits([&] {
        if (!marked_by_main) mark();
        EXPECT_EQ(Await(c, first), absl::OkStatus());
      });
      absl::SleepFor(2 * kAskAfter);
      EXPECT_EQ(Await(c, c.Barrier(rank == 0 ? "y" : "x")), absl::OkStatus());
      waits.join();
    }
  });
}

// Rank 1 waits in a step for whoever has not brought its gradients, and calls
// no barrier; rank 0 has brought them in one of two runs.
absl::Status BarrierWithoutRank1(bool rank_0_owes,
                                 absl::Duration step_timeout) {
  TestMesh mesh(2, {.step_timeout = step_timeout,
                    .steps_awaited =
                        [](absl::Duration) {
                          return std::vector<ModelStep>{{"net", 7}};
                        },
                    .owes_step =
                        [=](const ModelStep& step) {
                          return rank_0_owes && step.model == "net" &&
                                 step.step == 7;
                        }});
  return Await(mesh.at(0), mesh.at(0).Barrier("a"));
}

TEST(CollectiveStallTest, IsFoundWhereTheOtherRankWaitsInAStep) {
  EXPECT_EQ(BarrierWithoutRank1(true, absl::Minutes(1)).message(),
            "rank 0 waits for barrier 'a', rank 1 waits for step 7 of 'net': "
            "all ranks must call the same operations, equally often. A rank "
            "that has no more batches calls join()");
  EXPECT_EQ(BarrierWithoutRank1(false, absl::Seconds(4)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

// It computes, and does not wait.
TEST(CollectiveStallTest, IsNotARankThatTakesItsTime) {
  TestMesh mesh(2);
  mesh.Run([](int rank, Collectives& c) {
    Handle early = int64_t{0};
    if (rank == 1) {
      early = c.Barrier("b");
      EXPECT_EQ(c.Wait(*early, absl::ZeroDuration()).value(), false);
      absl::SleepFor(absl::Seconds(4));
    }
    EXPECT_EQ(Await(c, c.Barrier("a")), absl::OkStatus());
    if (rank == 0) early = c.Barrier("b");
    EXPECT_EQ(Await(c, early), absl::OkStatus());
  });
}

TEST(CollectiveStallTest, IsNotARankThatOnlyLooksWhetherACallIsDone) {
  TestMesh mesh(2, {}, /*own_threads=*/true);
  mesh.Run([](int rank, Collectives& c) {
    Handle early = int64_t{0};
    if (rank == 1) {
      early = c.Barrier("b");
      for (int looks = 0; looks < 50; ++looks) {
        EXPECT_EQ(c.Wait(*early, absl::ZeroDuration()).value_or(true), false);
        absl::SleepFor(absl::Milliseconds(100));
      }
    }
    EXPECT_EQ(Await(c, c.Barrier("a")), absl::OkStatus());
    if (rank == 0) early = c.Barrier("b");
    EXPECT_EQ(Await(c, early), absl::OkStatus());
  });
}

// A framework's thread, while the main thread is in code that waits for it.
TEST(CollectiveTimeoutTest, IsForetoldWhicheverThreadWaits) {
  const CapturedLog log;
  const auto told = [&log] {
    return log.Count("s at barrier 'a' for worker 1 (test)");
  };
  TestMesh mesh(2, {.long_wait = absl::Milliseconds(300)},
                /*own_threads=*/true);
  mesh.Run([&](int rank, Collectives& c) {
    std::thread other([&] {
      const Time deadline = Soon();
      while (rank == 1 && told() < 1 && Now() < deadline) {
        absl::SleepFor(absl::Milliseconds(10));
      }
      EXPECT_EQ(Await(c, c.Barrier("a")), absl::OkStatus());
    });
    other.join();
  });
  EXPECT_GE(told(), 1);
}

TEST(CollectiveTimeoutTest, IsForetoldInTheLogWithWhoHasNotCalled) {
  const CapturedLog log;
  const auto told = [&log] {
    return log.Count("s at barrier 'a' for worker 1 (test)");
  };
  constexpr absl::Duration kLongWait = absl::Milliseconds(300);
  TestMesh mesh(2, {.long_wait = kLongWait}, /*own_threads=*/true);
  const Time start = Now();
  mesh.Run([&](int rank, Collectives& c) {
    const Time deadline = Soon();
    while (rank == 1 && told() < 3 && Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_EQ(Await(c, c.Barrier("a")), absl::OkStatus());
  });
  EXPECT_GE(told(), 3);
  int most = 0;  // at each doubling
  for (auto wait = kLongWait; wait <= Now() - start; wait *= 2) ++most;
  EXPECT_LE(told(), most);
  EXPECT_EQ(log.Count("for worker 0"), 0);
}

TEST(CollectiveTimeoutTest, NamesWhoHasNotCalled) {
  // The others' calls come in time, and the words after that.
  TestMesh mesh(3, {.step_timeout = absl::Seconds(4)});
  std::vector<float> data(4);
  const auto zero = mesh.at(0).AllReduce("x", &data[0], &data[0], 1, kFloats);
  const auto two = mesh.at(2).AllReduce("x", &data[2], &data[2], 1, kFloats);
  const std::string expected =
      "allreduce 'x': not called within 4s by worker 1 (test)";
  ExpectSaid(Await(mesh.at(0), zero), expected);
  ExpectSaid(Await(mesh.at(2), two), expected);
  AwaitWord(mesh, 0, 1);  // either may have told it
  AwaitWord(mesh, 2, 1);
  ExpectSaid(Await(mesh.at(1),
                   mesh.at(1).AllReduce("x", &data[1], &data[1], 1, kFloats)),
             expected);
}

TEST(CollectiveFailureTest, CancellationEndsEverything) {
  TestMesh mesh(2);
  std::vector<float> data(1 << 20);
  const auto handle =
      mesh.at(0).AllReduce("x", data.data(), data.data(), 1 << 20, kFloats);
  const auto join = mesh.at(1).JoinUneven();
  const absl::Status why = absl::AbortedError("lost worker 1");
  for (int r = 0; r < 2; ++r) mesh.cancellation(r).Cancel(why);
  EXPECT_EQ(Await(mesh.at(0), handle), why);
  EXPECT_EQ(Await(mesh.at(1), join), why);
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).Barrier("y")), why);
}

TEST(CollectiveFailureTest, TellsTheOthersThatARankEnds) {
  TestMesh mesh(3);
  const auto handle = mesh.at(0).Barrier("x");
  ASSERT_TRUE(mesh.at(2).Barrier("x").ok());
  mesh.Destroy(2);
  EXPECT_EQ(Await(mesh.at(0), handle).message(),
            "rank 2 has ended its collectives");
}

TEST(CollectiveFailureTest, GivesUpWhatIsReleased) {
  TestMesh mesh(2);
  std::vector<float> data(1 << 20);
  const auto large =
      mesh.at(0).AllReduce("x", data.data(), data.data(), 1 << 20, kFloats);
  EXPECT_EQ(mesh.at(0).Release(*large), absl::OkStatus());
  data = {};  // it is not touched any more
  std::vector<float> other(1 << 20);
  EXPECT_EQ(
      Await(mesh.at(1), mesh.at(1).AllReduce("x", other.data(), other.data(),
                                             1 << 20, kFloats))
          .message(),
      "allreduce 'x': rank 0 has given it up");
  // What the other has all of can be done without this rank.
  const auto small = mesh.at(0).Barrier("y");
  EXPECT_EQ(mesh.at(0).Release(*small), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1), mesh.at(1).Barrier("y")), absl::OkStatus());
}

// ---- Ranks without data ----

TEST(JoinUnevenTest, TakesPartWithZerosUntilAllHaveJoined) {
  TestMesh mesh(3);
  mesh.Run([](int rank, Collectives& c) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 2 * (rank + 1); ++step) {
        std::vector<float> data(step % 2 == 0 ? 3 : 100'000, 3);
        int with_data = 0;
        for (int r = 0; r < 3; ++r) with_data += step < 2 * (r + 1);
        EXPECT_EQ(
            Await(c, c.AllReduce("x", data.data(), data.data(), data.size(),
                                 {DType::kFloat32, Reduction::kAverage})),
            absl::OkStatus());
        EXPECT_EQ(data.front(), with_data);
        EXPECT_EQ(data.back(), with_data);
        int64_t one = 1;
        EXPECT_EQ(Await(c, c.AllReduce("n", &one, &one, 1, {DType::kInt64})),
                  absl::OkStatus());
        EXPECT_EQ(one, with_data);
        EXPECT_EQ(Await(c, c.Barrier("b")), absl::OkStatus());
      }
      const auto handle = c.JoinUneven();
      ASSERT_EQ(Await(c, handle), absl::OkStatus());
      int32_t last = -1;
      EXPECT_EQ(c.Result(*handle, &last, sizeof(last)), absl::OkStatus());
      EXPECT_EQ(last, 2);
      EXPECT_EQ(c.Release(*handle), absl::OkStatus());
    }
  });
}

// Whatever comes first: what rank 0 says, or rank 1's next call.
TEST(JoinUnevenTest, GoesOnWhereACallerHasGivenItUp) {
  TestMesh mesh(2);
  Collectives& c = mesh.at(1);
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(c.Release(*c.JoinUneven()), absl::OkStatus());
    const auto called = mesh.at(0).Barrier("x");
    const auto again = c.JoinUneven();
    EXPECT_EQ(Await(mesh.at(0), called), absl::OkStatus());
    EXPECT_EQ(c.Release(*again), absl::OkStatus());
    EXPECT_EQ(Await(mesh.at(0), mesh.at(0).JoinUneven()), absl::OkStatus());
    EXPECT_EQ(Await(c, c.JoinUneven()), absl::OkStatus());
  }
}

TEST(JoinUnevenTest, BeginsAnewOnceItHasCalledSomethingElse) {
  TestMesh mesh(2);
  Collectives& c = mesh.at(1);
  EXPECT_EQ(c.Release(*c.JoinUneven()), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).JoinUneven()), absl::OkStatus());
  const auto called = c.Barrier("x");
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).Barrier("x")), absl::OkStatus());
  EXPECT_EQ(Await(c, called), absl::OkStatus());
  const auto next = c.JoinUneven();
  EXPECT_EQ(*c.Wait(*next, absl::ZeroDuration()), false);
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).JoinUneven()), absl::OkStatus());
  EXPECT_EQ(Await(c, next), absl::OkStatus());
}

// Whatever order its zeros leave in, and its sum is made in.
TEST(JoinUnevenTest, TakesPartInReduceScattersOfAnySize) {
  for (const int joined : {1, 2}) {
    TestMesh mesh(3);
    mesh.Run([&](int rank, Collectives& c) {
      for (const int64_t slice : {5, 4096, 100'000}) {
        const std::vector<int64_t> counts = {slice, slice, slice + 7};
        for (int i = 0; i < 10 && rank != joined; ++i) {
          const std::vector<float> in(3 * slice + 7, 1);
          std::vector<float> out(counts[rank]);
          ASSERT_EQ(Await(c, c.ReduceScatter("r", in.data(), out.data(), counts,
                                             {DType::kFloat32})),
                    absl::OkStatus());
          ASSERT_EQ(out, std::vector<float>(counts[rank], 2))
              << "slices of " << slice << ", rank " << joined << " has joined";
        }
      }
      ASSERT_EQ(Await(c, c.JoinUneven()), absl::OkStatus());
    });
  }
}

// That everybody has joined may be heard from rank 0 before the others' joins.
TEST(JoinUnevenTest, EndsRoundAfterRoundInWhateverOrderJoinsAreHeard) {
  TestMesh mesh(4);
  mesh.Run([](int, Collectives& c) {
    for (int round = 0; round < 500; ++round) {
      ASSERT_EQ(Await(c, c.JoinUneven()), absl::OkStatus());
      ASSERT_EQ(Await(c, c.Barrier("b")), absl::OkStatus());
    }
  });
}

TEST(JoinUnevenTest, FailsWhatHasNoZeros) {
  TestMesh mesh(3);
  const auto joined = mesh.at(1).JoinUneven();
  int32_t value[2] = {1, 2};
  const std::string rest =
      ": rank 1 has joined: it has no more data, and takes part only in "
      "barriers, sums and averages over all ranks";
  const auto gathers = [&](int r) {
    return mesh.at(r).AllGather("g", &value[r / 2], 4);
  };
  const auto zero = gathers(0), two = gathers(2);
  ExpectSaid(Await(mesh.at(0), zero), "allgather 'g'" + rest);
  ExpectSaid(Await(mesh.at(2), two), "allgather 'g'" + rest);
  EXPECT_EQ(
      Await(mesh.at(0), mesh.at(0).AllReduce("m", &value[0], &value[0], 1,
                                             {DType::kInt32, Reduction::kMax}))
          .message(),
      "allreduce 'm'" + rest);
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).Barrier("s", {{0, 1}})).message(),
            "barrier 's'" + rest);
  EXPECT_FALSE(Await(mesh.at(1), mesh.at(1).Barrier("mine")).ok());
  const auto others =
      std::vector<Handle>{mesh.at(0).JoinUneven(), mesh.at(2).JoinUneven()};
  EXPECT_EQ(Await(mesh.at(0), others[0]), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(2), others[1]), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1), joined), absl::OkStatus());
}

// It has been told of the failure before it joins.
TEST(JoinUnevenTest, SkipsWhatHasFailedBefore) {
  TestMesh mesh(3);
  std::vector<float> data(1 << 20);
  const auto given_up =
      mesh.at(1).AllReduce("x", data.data(), data.data(), 1 << 20, kFloats);
  EXPECT_EQ(mesh.at(1).Release(*given_up), absl::OkStatus());
  AwaitWord(mesh, 1, 0);
  AwaitWord(mesh, 1, 2);
  EXPECT_EQ(
      Await(mesh.at(0), mesh.at(0).AllReduce("x", data.data(), data.data(),
                                             1 << 20, kFloats))
          .message(),
      "allreduce 'x': rank 1 has given it up");
  const auto joined = mesh.at(2).JoinUneven();
  const auto zero = mesh.at(0).Barrier("x"), one = mesh.at(1).Barrier("x");
  EXPECT_EQ(Await(mesh.at(0), zero), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1), one), absl::OkStatus());
}

// ---- Who says what has failed ----

absl::Status FailureBy(uint32_t rank, const std::string& text) {
  CollectiveHeader header;
  header.set_sender(rank);
  header.set_code(9);
  header.set_text(text);
  return FailureIn(header);
}

TEST(CollectiveFailureTest, HasTheNameOfWhoeverSaysIt) {
  EXPECT_EQ(FailureBy(1, "the disk is full"),
            absl::FailedPreconditionError("rank 1 says: the disk is full"));
  EXPECT_EQ(FailureBy(1, "rank 12 is late: ranks 1 and 2 wait").message(),
            "rank 1 says: rank 12 is late: ranks 1 and 2 wait");
  for (const char* text : {"rank 12 is late for rank 1", "rank 1 has ended",
                           "'x': rank 1 has given it up"}) {
    EXPECT_EQ(FailureBy(1, text).message(), text);
  }
}

// ---- Strangers ----

CollectiveHeader CallOf(const std::string& name) {
  CollectiveHeader header;
  header.set_kind(CollectiveHeader::CALL);
  header.set_job_epoch(kTestJob);
  header.set_sender(1);
  header.mutable_key()->set_name(name);
  header.mutable_key()->set_set_size(2);
  header.mutable_call()->set_operation(CollectiveCall::BARRIER);
  return header;
}

absl::Status Parse(const CollectiveHeader& header, int size) {
  Frames frames;
  for (const std::string& part :
       {std::string("peer"), header.SerializeAsString(), std::string()}) {
    frames.push_back(Frame::Copy(part));
  }
  const Addressee here{.job_epoch = kTestJob, .rank = 0, .size = size};
  return ParseCollective(std::move(frames), here).status();
}

// Whatever limit its memory has.
TEST(CollectiveHeaderTest, IsReadAtItsLargest) {
  constexpr int kRanks = 10'000;
  CollectiveHeader call = CallOf(std::string(kMaxNameBytes, 'n'));
  call.mutable_key()->set_set_size(kRanks);
  CollectiveHeader fail = call;
  CollectiveHeader answer = call;
  proto::CollectiveCall& what = *call.mutable_call();
  what.set_operation(CollectiveCall::REDUCESCATTER);
  what.set_tag(std::string(kMaxTagBytes, 't'));
  for (int r = 0; r < kRanks; ++r) what.add_counts(int64_t{1} << 20);
  what.set_count(int64_t{kRanks} << 20);
  what.set_prescale(1);
  what.set_postscale(1);
  fail.clear_call();
  fail.set_kind(CollectiveHeader::FAIL);
  fail.set_code(9);
  fail.set_text(std::string(kMaxTextBytes, 'f'));
  answer.clear_call();
  answer.set_kind(CollectiveHeader::ANSWER);
  for (int i = 0; i < kMaxWaits; ++i) {
    *answer.add_waits()->mutable_key() = answer.key();
    answer.add_steps()->set_model(answer.key().name());
  }
  CollectiveHeader question = fail;
  question.set_kind(CollectiveHeader::QUESTION);
  question.clear_text();
  question.set_order(question.key().name());
  for (const CollectiveHeader& header : {call, fail, question, answer}) {
    EXPECT_EQ(Parse(header, kRanks), absl::OkStatus()) << header.kind();
  }
}

TEST(CollectiveIntruderTest, IsDroppedForWhateverIsMalformed) {
  TestMesh mesh(2);
  std::vector<std::vector<std::string>> messages;
  const auto add = [&](const std::function<void(CollectiveHeader&)>& change,
                       const std::string& payload = "") {
    CollectiveHeader header = CallOf("x");
    change(header);
    messages.push_back({header.SerializeAsString(), payload});
  };
  messages.push_back({"one frame"});
  messages.push_back({"not", "a", "message"});
  messages.push_back({"\xff\xff\xff", ""});
  messages.push_back({"", ""});
  add([](auto& h) { h.set_job_epoch(1); });
  add([](auto& h) { h.set_sender(0); });
  add([](auto& h) { h.set_sender(2); });
  add([](auto& h) { h.mutable_key()->set_name(std::string(257, 'x')); });
  add([](auto& h) { h.mutable_key()->clear_name(); });
  add([](auto& h) { h.mutable_key()->set_set_size(3); });
  add([](auto& h) { h.mutable_call()->clear_operation(); });
  add([](auto& h) { h.mutable_call()->set_count(-1); });
  add([](auto& h) { h.mutable_call()->set_root(2); });
  add([](auto& h) { h.mutable_call()->set_tag(std::string(1025, 'x')); });
  add([](auto& h) { h.mutable_call()->add_counts(1); });
  add([](auto& h) {
    h.mutable_call()->set_operation(CollectiveCall::ALLREDUCE);
    h.mutable_call()->set_dtype(10);
  });
  add([](auto& h) { h.set_bytes(-1); });
  add([](auto& h) { h.set_bytes(4); }, "five!");
  add([](auto& h) { h.set_kind(CollectiveHeader::CHUNK); });
  add([](auto& h) { h.set_kind(CollectiveHeader::CHUNK); }, "nobody calls it");
  add([](auto& h) {
    h.set_slot_number(1);
    h.set_bytes(1);
  });
  add([](auto& h) { h.set_slot_number(1); }, "and here, too");
  add([](auto& h) {
    h.set_kind(CollectiveHeader::ACK);
    h.set_slot_number(1);
  });
  add([](auto& h) {  // in memory that this one does not share
    h.set_kind(CollectiveHeader::CHUNK);
    h.set_slot_number(1);
    h.set_bytes(1);
  });
  add(
      [](auto& h) {
        h.set_kind(CollectiveHeader::CHUNK);
        h.set_slot_number(1);
        h.set_bytes(1);
      },
      "and here, too");
  add([](auto& h) { h.set_kind(CollectiveHeader::FAIL); });
  add([](auto& h) { h.set_kind(CollectiveHeader::ACK); }, "payload");
  add([](auto& h) {
    h.set_kind(CollectiveHeader::ACK);
    h.set_round(2);
  });
  add([](auto& h) {
    h.set_kind(CollectiveHeader::ANSWER);
    for (int i = 0; i <= kMaxWaits; ++i)
      *h.add_waits()->mutable_key() = h.key();
  });
  add([](auto& h) {
    h.set_kind(CollectiveHeader::ANSWER);
    h.add_steps()->set_step(-1);
  });
  add([](auto& h) {
    h.set_kind(CollectiveHeader::QUESTION);
    h.set_order(std::string(257, 'x'));
  });
  add([](auto& h) {
    h.set_kind(CollectiveHeader::EVERYBODY_JOINED);
    h.set_sender(1);
  });
  add([](auto& h) {
    h.set_kind(CollectiveHeader::JOINED);
    h.set_join_round(7);
  });
  add([](auto& h) { h.set_text(std::string(10'000, 'x')); });
  add([](auto& h) {
    for (int i = 0; i < 1000; ++i) h.add_waits();
  });
  // Field 1023, which there is not: 1000 times a 0.
  std::string unknown;
  for (int i = 0; i < 1000; ++i) unknown += std::string("\xf8\x3f\0", 3);
  messages.push_back({CallOf("x").SerializeAsString() + unknown, ""});
  for (size_t i = 0; i < messages.size(); ++i) {
    HostilePeer peer(mesh.at(0).endpoint());
    peer.Send(messages[i]);
    ASSERT_TRUE(peer.AwaitTaken(Soon())) << i;
    const Time deadline = Soon();
    while (mesh.at(0).malformed() < static_cast<int64_t>(i) + 1) {
      ASSERT_LT(Now(), deadline) << "message " << i << " was not counted";
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  EXPECT_EQ(mesh.at(0).malformed(), static_cast<int64_t>(messages.size()));
  // Nobody else has noticed.
  mesh.Run([](int rank, Collectives& c) {
    EXPECT_EQ(Await(c, c.Barrier("x")), absl::OkStatus());
  });
}

// What `sender` says of the barrier 'x' of three ranks.
CollectiveHeader OfBarrier(CollectiveHeader::Kind kind, uint32_t sender,
                           uint64_t occurrence) {
  CollectiveHeader header = CallOf("x");
  header.set_kind(kind);
  header.set_sender(sender);
  header.mutable_key()->set_set_size(3);
  header.mutable_key()->set_set_digest(DigestOf({0, 1, 2}));
  header.mutable_key()->set_occurrence(occurrence);
  if (kind == CollectiveHeader::FAIL) {
    header.set_code(10);
    header.set_text("rank 1 has given it up");
  }
  return header;
}

// Ranks 0 and 1 meet, with rank 2, which has joined.
void ExpectBarriers(TestMesh& mesh, int number) {
  for (int i = 0; i < number; ++i) {
    const auto zero = mesh.at(0).Barrier("x"), one = mesh.at(1).Barrier("x");
    EXPECT_EQ(Await(mesh.at(0), zero), absl::OkStatus()) << i;
    EXPECT_EQ(Await(mesh.at(1), one), absl::OkStatus()) << i;
  }
}

// Else it would answer none of the calls before.
TEST(CollectiveIntruderTest, DoesNotMakeARankThatHasJoinedMissItsTurn) {
  for (const uint64_t occurrence : {uint64_t{50}, ~uint64_t{0}}) {
    TestMesh mesh(3);
    const auto joined = mesh.at(2).JoinUneven();
    HostilePeer peer(mesh.at(2).endpoint());
    const auto call = OfBarrier(CollectiveHeader::CALL, 1, occurrence);
    peer.Send({call.SerializeAsString(), ""});
    ASSERT_TRUE(peer.AwaitTaken(Soon()));
    ExpectBarriers(mesh, 2);
  }
}

// Rank 1 has given up a barrier; rank 0 has heard of it, and calls the next,
// before rank 2 has heard anything of rank 1.
TEST(JoinUnevenTest, WaitsForWhatIsOnItsWayFromAnotherRank) {
  TestMesh mesh(3);
  const auto joined = mesh.at(2).JoinUneven();
  HostilePeer zero(mesh.at(2).endpoint()), one(mesh.at(2).endpoint());
  const auto send = [](HostilePeer& peer, const CollectiveHeader& header) {
    peer.Send({header.SerializeAsString(), ""});
    ASSERT_TRUE(peer.AwaitTaken(Soon()));
  };
  send(zero, OfBarrier(CollectiveHeader::CALL, 0, 1));
  send(one, OfBarrier(CollectiveHeader::CALL, 1, 0));
  send(one, OfBarrier(CollectiveHeader::FAIL, 1, 0));
  send(one, OfBarrier(CollectiveHeader::CALL, 1, 1));
  // Those whose names they took meet with what rank 2 has answered.
  ExpectBarriers(mesh, 2);
  EXPECT_EQ(mesh.at(0).malformed() + mesh.at(1).malformed(), 0);
}

// Of an operation that is under way.
TEST(CollectiveIntruderTest, IsDroppedForWhatIsNotDue) {
  TestMesh mesh(2);
  std::vector<float> data(100'000, 1);
  const auto handle =
      mesh.at(0).AllReduce("x", data.data(), data.data(), 100'000, kFloats);
  CollectiveHeader chunk = CallOf("x");
  chunk.mutable_key()->set_set_digest(DigestOf({0, 1}));
  chunk.set_kind(CollectiveHeader::CHUNK);
  CollectiveHeader ack = chunk;
  ack.set_kind(CollectiveHeader::ACK);
  ack.set_offset(100);
  CollectiveHeader ack_of_nothing = ack;
  ack_of_nothing.set_offset(0);
  int64_t dropped = 0;
  for (const auto& [header, payload] :
       {std::pair<CollectiveHeader, std::string>(chunk, "1234"),
        std::pair<CollectiveHeader, std::string>(ack, ""),
        std::pair<CollectiveHeader, std::string>(ack_of_nothing, "")}) {
    HostilePeer peer(mesh.at(0).endpoint());
    const Time deadline = Soon();
    peer.Send({header.SerializeAsString(), payload});
    ++dropped;
    while (mesh.at(0).malformed() < dropped) {
      ASSERT_LT(Now(), deadline);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  std::vector<float> other(100'000, 2);
  const auto answer =
      mesh.at(1).AllReduce("x", other.data(), other.data(), 100'000, kFloats);
  EXPECT_EQ(Await(mesh.at(0), handle), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1), answer), absl::OkStatus());
  EXPECT_EQ(data[99'999], 3);
}

// Rank 1 calls some seconds before the timeout of rank 0's call, and takes
// longer than that to send the first data.
TEST(CollectiveTimeoutTest, BeginsAnewWhenAllHaveCalled) {
  TestMesh mesh(2, {.step_timeout = absl::Seconds(8)});
  std::string data(20'000, '-');
  const auto handle = mesh.at(0).Broadcast("x", data.data(), 20'000, 1);
  CollectiveHeader call = CallOf("x");
  call.mutable_key()->set_set_digest(DigestOf({0, 1}));
  call.mutable_call()->set_operation(CollectiveCall::BROADCAST);
  call.mutable_call()->set_count(20'000);
  call.mutable_call()->set_root(1);
  call.set_bytes(20'000);
  CollectiveHeader chunk = call;
  chunk.clear_call();
  chunk.set_kind(CollectiveHeader::CHUNK);
  HostilePeer one(mesh.at(0).endpoint());
  absl::SleepFor(absl::Seconds(4.5));
  one.Send({call.SerializeAsString(), ""});
  absl::SleepFor(absl::Seconds(4.5));
  one.Send({chunk.SerializeAsString(), std::string(20'000, 'w')});
  EXPECT_EQ(Await(mesh.at(0), handle), absl::OkStatus());
  EXPECT_EQ(data, std::string(20'000, 'w'));
}

// Rank 0 calls a sum of 256 GiB, in which rank 1, which has joined, would take
// part with zeros.
TEST(JoinUnevenTest, SaysThatThereIsNoMemoryForTheZeros) {
#ifdef PSRING_SANITIZED
  GTEST_SKIP() << "a sanitizer ends the process instead";
#endif
  // Some systems promise more memory than they have.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limited = {std::min(rlim_t{1} << 37, before.rlim_max),
                          before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const absl::Cleanup restore = [&] { setrlimit(RLIMIT_AS, &before); };
  TestMesh mesh(2);
  const auto joined = mesh.at(1).JoinUneven();
  CollectiveHeader call = CallOf("x");
  call.set_sender(0);
  call.mutable_key()->set_set_digest(DigestOf({0, 1}));
  call.mutable_call()->set_operation(CollectiveCall::ALLREDUCE);
  call.mutable_call()->set_dtype(static_cast<uint32_t>(DType::kFloat32));
  call.mutable_call()->set_count(int64_t{1} << 36);
  HostilePeer zero(mesh.at(1).endpoint());
  zero.Send({call.SerializeAsString(), ""});
  ASSERT_TRUE(zero.AwaitTaken(Soon()));
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).Barrier("x")),
            absl::ResourceExhaustedError(
                "allreduce 'x': rank 1 has joined, and has no memory for the "
                "274877906944 bytes of zeros with which it takes part"));
}

// Else it would be rank 2's, which has not called, and the barrier was over.
TEST(CollectiveIntruderTest, IsDroppedForACallThatIsNotDue) {
  TestMesh mesh(3);
  const auto handle = mesh.at(0).Barrier("x");
  ASSERT_TRUE(handle.ok());
  CollectiveHeader call = OfBarrier(CollectiveHeader::CALL, 1, 0);
  int64_t dropped = 0;
  // A barrier brings nothing; and a rank calls it once.
  for (const std::string& payload : {std::string("data"), std::string()}) {
    call.set_bytes(static_cast<int64_t>(payload.size()));
    HostilePeer peer(mesh.at(0).endpoint());
    peer.Send({call.SerializeAsString(), payload});
    ++dropped;
    const Time deadline = Soon();
    while (mesh.at(0).malformed() < dropped) {
      ASSERT_LT(Now(), deadline) << "'" << payload << "' was not counted";
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  EXPECT_EQ(mesh.at(0).Wait(*handle, absl::ZeroDuration()).value(), false);
}

// They are kept, as rank 2 has not called yet: but not without end.
TEST(CollectiveIntruderTest, IsDroppedForMoreChunksThanAWindowHas) {
  TestMesh mesh(3);
  const auto handle = mesh.at(0).Barrier("x");
  ASSERT_TRUE(handle.ok());
  HostilePeer peer(mesh.at(0).endpoint());
  const auto call = OfBarrier(CollectiveHeader::CALL, 1, 0);
  const auto chunk = OfBarrier(CollectiveHeader::CHUNK, 1, 0);
  peer.Send({call.SerializeAsString(), ""});
  for (int64_t i = 0; i < 3 * kNumRounds * (kSharedFlowWindow / kChunkBytes);
       ++i) {
    peer.Send({chunk.SerializeAsString(), "data"});
  }
  ASSERT_TRUE(peer.AwaitTaken(Soon()));
  EXPECT_EQ(mesh.at(0).malformed(), 0);
  peer.Send({chunk.SerializeAsString(), "data"});
  const Time deadline = Soon();
  while (mesh.at(0).malformed() == 0) {
    ASSERT_LT(Now(), deadline);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// Else its sender would take this rank for lost at some time.
TEST(CollectiveIdleTest, AcknowledgesWhatHasCome) {
  TestMesh mesh(3);
  mesh.Run([](int, Collectives& c) {
    EXPECT_EQ(Await(c, c.Barrier("before")), absl::OkStatus());
  });
  Context context;
  const auto peer = Socket::Connect(context, mesh.at(0).endpoint(),
                                    CollectiveSocketOptions());
  ASSERT_TRUE(peer.ok()) << peer.status();
  Frames call;
  call.push_back(
      Frame::Copy(OfBarrier(CollectiveHeader::CALL, 1, 0).SerializeAsString()));
  call.emplace_back();
  ASSERT_EQ((*peer)->Send(std::move(call)), absl::OkStatus());
  const Time deadline = Soon();
  while (!(*peer)->delivered() && Now() < deadline) {
    ASSERT_EQ(
        Wait({peer->get()}, std::vector<int>{}, Now() + absl::Milliseconds(10)),
        absl::OkStatus());
    ASSERT_EQ((*peer)->TryReceive().status(), absl::OkStatus());
  }
  EXPECT_TRUE((*peer)->delivered());
}

// A rank that has done its part: what needs it fails soon, and says so; what
// the others do among themselves goes on.
TEST(CollectiveLeaverTest, WhatNeedsARankThatHasLeftFailsSoon) {
  std::atomic<bool> gone = false;
  CollectivesOptions options;
  options.ranks_left = [&gone] {
    return gone ? std::vector<int>{2} : std::vector<int>();
  };
  TestMesh mesh(3, options);
  mesh.Run([](int rank, Collectives& c) {
    EXPECT_EQ(Await(c, c.Barrier("all are here")), absl::OkStatus());
  });
  gone = true;
  mesh.Run([](int rank, Collectives& c) {
    if (rank == 2) return;
    const Time start = Now();
    const std::string why(Await(c, c.Barrier("after")).message());
    EXPECT_TRUE(absl::StrContains(why, "has left the job")) << why;
    EXPECT_TRUE(absl::StrContains(why, "barrier 'after'")) << why;
    EXPECT_LT(Now() - start, absl::Seconds(30));  // half the timeout
    EXPECT_EQ(Await(c, c.Barrier("of two", std::vector<int32_t>{0, 1})),
              absl::OkStatus());
  });
}

TEST(SecuredCollectivesTest, DropARankThatSpeaksAsAnother) {
  constexpr int kRanks = 3;
  const CapturedLog log;
  const Secret secret = Secret::Random();
  Context contexts[kRanks];
  Cancellation cancellation;
  CollectiveJob job;
  job.epoch = kTestJob;
  std::vector<std::unique_ptr<Collectives>> ranks;
  for (Context& context : contexts) {
    ASSERT_EQ(context.Secure(secret), absl::OkStatus());
    ranks.push_back(*Collectives::Create(context, cancellation, "127.0.0.1"));
    job.endpoints.push_back(ranks.back()->endpoint());
    job.pids.push_back(getpid());
    job.descriptions.push_back("a worker");
    job.public_keys.push_back(context.public_key());
  }
  for (Context& context : contexts) context.AllowWorkers(job.public_keys);
  for (job.rank = 0; job.rank < kRanks; ++job.rank) {
    ASSERT_EQ(ranks[job.rank]->Connect(job), absl::OkStatus());
  }
  const auto barrier = [&] {
    std::vector<Handle> handles;
    for (const auto& rank : ranks) handles.push_back(rank->Barrier("x"));
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(Await(*ranks[r], handles[r]), absl::OkStatus());
    }
  };
  barrier();
  EXPECT_EQ(ranks[0]->malformed(), 0);
  auto impostor = Socket::Connect(contexts[1], job.endpoints[0],
                                  CollectiveSocketOptions(job.KeyOf(0)));
  ASSERT_TRUE(impostor.ok()) << impostor.status();
  CollectiveHeader header;
  header.set_kind(CollectiveHeader::JOINED);
  header.set_job_epoch(kTestJob);
  header.set_sender(2);
  Frames frames;
  frames.push_back(Frame::Copy(header.SerializeAsString()));
  frames.push_back(Frame());
  ASSERT_EQ((*impostor)->Send(std::move(frames)), absl::OkStatus());
  const Time deadline = Soon();
  while (ranks[0]->malformed() == 0 && Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(ranks[0]->malformed(), 1);
  barrier();
  ranks.clear();
  EXPECT_EQ(log.Count(" (worker 1) of tcp://127.0.0.1:"), 1);
}

}  // namespace
}  // namespace psring
