// Ranks of one host, whose callers take the mesh's turns after the first calls.
#include <cfenv>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/collectives.h"
#include "common/clock.h"
#include "gtest/gtest.h"
#include "tests/collectives/test_mesh.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

constexpr Arithmetic kSum{DType::kFloat32, Reduction::kSum};

// Until all ranks say everything by mailboxes, and callers wait for short.
void CallSome(TestMesh& mesh, int num_calls = 50) {
  mesh.Run([&](int, Collectives& c) {
    for (int i = 0; i < num_calls; ++i) {
      const auto handle = c.Barrier("some");
      EXPECT_EQ(Await(c, handle), absl::OkStatus());
      EXPECT_EQ(c.Release(*handle), absl::OkStatus());
    }
  });
}

// Without waiting for it, as the timeout is 0.
bool IsDoneSoon(Collectives& collectives, int64_t handle) {
  const Time deadline = Soon();
  while (Now() < deadline) {
    if (*collectives.Wait(handle, absl::ZeroDuration())) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

TEST(MeshRunnerTest, SumsInStandardArithmeticWhateverTheCallersIs) {
  TestMesh mesh(2);
  CallSome(mesh);
  mesh.Run([](int rank, Collectives& c) {
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
    for (int i = 0; i < 50; ++i) {
      float value = rank == 0 ? 1.0F : std::ldexp(1.0F, -25);
      const auto handle = c.AllReduce("sum", &value, &value, 1, kSum);
      ASSERT_EQ(Await(c, handle), absl::OkStatus());
      EXPECT_EQ(value, 1.0F);
      EXPECT_EQ(std::fegetround(), FE_UPWARD);
      EXPECT_EQ(c.Release(*handle), absl::OkStatus());
    }
  });
}

// What others need of a rank is done without its callers: of small calls and
// large ones, right after calls for which a caller has taken the turns.
TEST(MeshRunnerTest, DoesWhatNobodyWaitsFor) {
  TestMesh mesh(3);
  for (const int64_t size : {1, 100'000, 3'000'000}) {
    CallSome(mesh);
    std::vector<std::vector<float>> data(3, std::vector<float>(size, 1));
    std::vector<int64_t> handles;
    for (int rank = 0; rank < 3; ++rank) {
      handles.push_back(*mesh.at(rank).AllReduce(
          "sum", data[rank].data(), data[rank].data(), size, kSum));
    }
    EXPECT_EQ(Await(mesh.at(1), handles[1]), absl::OkStatus());
    EXPECT_EQ(data[1], std::vector<float>(size, 3));
    EXPECT_TRUE(IsDoneSoon(mesh.at(0), handles[0]));
    EXPECT_TRUE(IsDoneSoon(mesh.at(2), handles[2]));
  }
}

// One waits for what comes late; its turns do what the other thread calls, and
// the other way round.
TEST(MeshRunnerTest, TwoThreadsOfARankWaitAtOnce) {
  TestMesh mesh(2);
  CallSome(mesh);
  mesh.Run([](int rank, Collectives& c) {
    std::thread other([&] {
      if (rank == 1) absl::SleepFor(absl::Milliseconds(700));
      const auto late = c.Barrier("late");
      EXPECT_EQ(Await(c, late), absl::OkStatus());
    });
    for (int i = 0; i < 300; ++i) {
      std::vector<float> data(i, 1);
      const auto handle =
          c.AllReduce("often", data.data(), data.data(), i, kSum);
      ASSERT_EQ(Await(c, handle), absl::OkStatus());
      EXPECT_EQ(data, std::vector<float>(i, 2));
      EXPECT_EQ(c.Release(*handle), absl::OkStatus());
    }
    other.join();
  });
}

TEST(MeshRunnerTest, ACallerLearnsOfACancellation) {
  TestMesh mesh(2);
  CallSome(mesh);
  const auto handle = mesh.at(0).Barrier("alone");
  std::thread caller([&] {
    EXPECT_EQ(Await(mesh.at(0), handle), absl::AbortedError("the end"));
  });
  absl::SleepFor(absl::Milliseconds(200));
  mesh.cancellation(0).Cancel(absl::AbortedError("the end"));
  caller.join();
  // And so does who calls, or waits, only then.
  EXPECT_EQ(Await(mesh.at(0), mesh.at(0).Barrier("next")),
            absl::AbortedError("the end"));
}

TEST(MeshRunnerTest, GivesUpACallWhileAnotherIsAwaited) {
  TestMesh mesh(2);
  CallSome(mesh);
  const auto waits = mesh.at(0).Barrier("waits");
  std::string data(3'000'000, 'x'), other = data;  // chunks follow the call
  const auto given_up =
      mesh.at(0).Broadcast("given up", data.data(), 3'000'000, 0);
  std::thread caller(
      [&] { EXPECT_EQ(Await(mesh.at(0), waits), absl::OkStatus()); });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(mesh.at(0).Release(*given_up), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1),
                  mesh.at(1).Broadcast("given up", other.data(), 3'000'000, 0))
                .code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(Await(mesh.at(1), mesh.at(1).Barrier("waits")), absl::OkStatus());
  caller.join();
}

}  // namespace
}  // namespace psring
