#include "common/cluster/worker_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/cluster/coordinator.h"
#include "common/cluster/member.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs `body` in a thread for each worker of a job of three.
void RunThreeWorkers(const std::function<void(Member&)>& body) {
  MembershipOptions options;
  options.mode = proto::RING;
  options.num_servers = 0;
  options.num_workers = 3;
  Context context;
  auto coordinator = Coordinator::Start(context, {"127.0.0.1", 0}, options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Context own;
      Cancellation cancellation;
      MemberOptions worker;
      worker.coordinator = (*coordinator)->endpoint();
      worker.join.set_role(proto::WORKER);
      worker.join.set_address("127.0.0.1");
      worker.join.set_wanted_rank(-1);
      worker.join.set_mode(proto::RING);
      auto member = Member::Join(own, cancellation, worker);
      ASSERT_TRUE(member.ok()) << member.status();
      body(**member);
      EXPECT_TRUE((*member)->Leave(absl::OkStatus(), Soon()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// 1e16 + 1 is 1e16: a 1 counts only where it is added last.
TEST(SumOverWorkers, AddsInRankOrderEverywhere) {
  const std::vector<double> of_rank[] = {
      {1e16, 1, 1e16}, {1, 1e16, -1e16}, {-1e16, -1e16, 1}};
  RunThreeWorkers([&](Member& member) {
    for (const char* name : {"once", "and again"}) {
      std::vector<double> values = of_rank[member.job().rank()];
      const absl::Status status =
          SumOverWorkers(member, name, absl::MakeSpan(values), Soon());
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(values, ElementsAre(0, 0, 1));
    }
  });
}

TEST(SumOverWorkers, NamesTheWorkerThatSumsAnotherNumberOfValues) {
  RunThreeWorkers([](Member& member) {
    const int rank = member.job().rank();
    std::vector<double> values(rank == 1 ? 2 : 3, 1.0);
    const absl::Status status =
        SumOverWorkers(member, "loss", absl::MakeSpan(values), Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(rank == 1 ? "loss: worker 0 sums 3 values, this one 2"
                            : "loss: worker 1 sums 2 values, this one 3"));
  });
}

}  // namespace
}  // namespace psring
