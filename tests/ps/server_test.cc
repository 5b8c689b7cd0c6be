#include "ps/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "common/cluster/coordinator.h"
#include "common/cluster/member.h"
#include "common/net/address.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of a job with a worker that asks the server to open `payload`: the server's.
absl::Status ServeWhoeverAsksFor(const std::string& payload) {
  Context context;
  EXPECT_EQ(context.UseTokens(), absl::OkStatus());
  auto coordinator = Coordinator::Start(context, {"127.0.0.1", 0},
                                        {.num_servers = 1, .num_workers = 1});
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  std::thread worker([&] {
    Context own;
    ASSERT_EQ(own.UseTokens(), absl::OkStatus());
    Cancellation cancellation;
    MemberOptions options;
    options.coordinator = (*coordinator)->endpoint();
    options.join.set_role(proto::WORKER);
    options.join.set_mode(proto::PARAMETER_SERVER);
    options.join.set_wanted_rank(-1);
    options.join.set_host("h");
    options.join.set_address("127.0.0.1");
    auto member = Member::Join(own, cancellation, options);
    ASSERT_TRUE(member.ok()) << member.status();
    (*member)->Announce(proto::PS, "open model", payload);
    EXPECT_FALSE((*member)->AwaitAnnouncement("served model", Soon()).ok());
  });
  ServerOptions options;
  options.cluster.placement.role = proto::PS;
  options.cluster.placement.coordinator =
      *ParseEndpoint((*coordinator)->endpoint());
  options.cluster.advertise = "127.0.0.1";
  Cancellation cancellation;
  const absl::Status status = RunServer(options, cancellation);
  worker.join();
  return status;
}

// The job's error names the server, which has only told it.
TEST(Server, NamesTheWorkerThatAsksForWhatCannotBe) {
  proto::Welcome model;
  model.set_model_id("model");
  for (const std::string& payload :
       {std::string("\xff"), model.SerializeAsString()}) {
    EXPECT_THAT(std::string(ServeWhoeverAsksFor(payload).message()),
                AllOf(HasSubstr("of the model that worker 0 (host h"),
                      HasSubstr("asks for: ")));
  }
}

// It would only find out when a worker opens a model.
TEST(Server, IsToldOfAnAddressThatItDoesNotHaveBeforeItJoins) {
  Context context;
  ASSERT_EQ(context.UseTokens(), absl::OkStatus());
  auto coordinator = Coordinator::Start(context, {"127.0.0.1", 0},
                                        {.num_servers = 1, .num_workers = 1});
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ServerOptions options;
  options.cluster.placement.role = proto::PS;
  options.cluster.placement.coordinator =
      *ParseEndpoint((*coordinator)->endpoint());
  options.cluster.advertise = "192.0.2.1";
  options.cluster.security.insecure = true;
  Cancellation cancellation;
  const absl::Status status = RunServer(options, cancellation);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--advertise"),
                    HasSubstr("192.0.2.1 is no address of this host")));
}

}  // namespace
}  // namespace psring
