#include "common/cluster/model_opening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/model_parts.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Where nobody listens, but somebody could.
std::string EndpointOf(absl::string_view role, int rank) {
  return absl::StrCat("tcp://127.0.0.1:",
                      role == "ps" ? 7000 + rank : 8000 + rank);
}

// Two servers and two workers, each on a thread of its own.
class ModelOpeningTest : public ::testing::Test {
 protected:
  static constexpr int kServers = 2;
  static constexpr int64_t kPid = 4711;

  using Body = std::function<absl::Status(Member&)>;

  static proto::ModelPart PartOf(const Member& member, const char* role) {
    proto::ModelPart part;
    part.add_endpoints(EndpointOf(role, member.job().rank()));
    return part;
  }

  static proto::ModelPart WorkerPart(const Member& member) {
    proto::ModelPart part = PartOf(member, "worker");
    part.mutable_spec()->mutable_optimizer()->set_lr(0.02);
    return part;
  }

  // Every process's result: servers first.
  std::vector<absl::Status> Run(const Body& server, const Body& worker) {
    Context context;
    MembershipOptions options;
    options.num_servers = kServers;
    options.num_workers = workers_;
    options.job_epoch = 7;
    auto coordinator = Coordinator::Start(context, {"127.0.0.1", 0}, options);
    EXPECT_TRUE(coordinator.ok()) << coordinator.status();
    std::vector<absl::Status> results(kServers + workers_);
    std::vector<std::thread> threads;
    for (int i = 0; i < kServers + workers_; ++i) {
      threads.emplace_back([&, i] {
        const bool is_server = i < kServers;
        results[i] = RunOne((*coordinator)->endpoint(),
                            is_server ? proto::PS : proto::WORKER,
                            is_server ? server : worker);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  // All say that this worker has another rate. Settings have a tensor with a
  // name of so many bytes; 0: none.
  void ExpectNamed(int disagrees, int name_bytes);

  int workers_ = 2;

 private:
  static absl::Status RunOne(const std::string& coordinator, proto::Role role,
                             const Body& body) {
    Context context;
    Cancellation cancellation;
    MemberOptions options;
    options.coordinator = coordinator;
    options.join.set_role(role);
    options.join.set_mode(proto::PARAMETER_SERVER);
    options.join.set_wanted_rank(-1);
    options.join.set_host("h");
    options.join.set_address("127.0.0.1");
    options.join.set_pid(kPid);
    auto member = Member::Join(context, cancellation, options);
    if (!member.ok()) return member.status();
    const absl::Status status = body(**member);
    if (role == proto::PS && status.ok()) return status;
    return (*member)->Leave(status, Soon());
  }
};

// Answers as long as the job lasts.
absl::Status Serve(Member& member, std::vector<std::string>* closed,
                   const std::function<proto::ModelPart(Member&)>& part) {
  while (true) {
    const auto next = member.NextAnnouncement();
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    const auto request = ParseModelRequest(**next);
    if (!request.ok()) return request.status();
    if (request->kind == ModelRequest::Kind::kClose) {
      if (member.job().rank() == 0) {
        closed->push_back(request->model.model_id());
      }
      continue;
    }
    const auto model =
        AnswerModel(member, request->model, part(member), Soon());
    if (!model.ok()) return model.status();
    EXPECT_EQ(model->workers(1).endpoints(0), EndpointOf("worker", 1));
    EXPECT_EQ(model->servers(1).endpoints(0), EndpointOf("ps", 1));
  }
}

void ModelOpeningTest::ExpectNamed(int disagrees, int name_bytes) {
  std::vector<std::string> closed;
  const auto results =
      Run([&](Member& member) { return Serve(member, &closed, nullptr); },
          [&](Member& member) {
            proto::ModelPart part = WorkerPart(member);
            if (name_bytes > 0) {
              part.mutable_spec()->add_tensors()->set_name(
                  std::string(name_bytes, 'x'));
            }
            if (member.job().rank() == disagrees) {
              part.mutable_spec()->mutable_optimizer()->set_lr(0.1);
            }
            return OpenModel(member, "model", part, Soon()).status();
          });
  for (const absl::Status& status : results) {
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(absl::StrCat("worker ", disagrees, " (host h")),
              HasSubstr(absl::StrCat("optimizer.lr: 0.1 in worker ", disagrees,
                                     ", 0.02 in worker 0"))));
  }
}

TEST_F(ModelOpeningTest, EverybodyLearnsTheSpecAndAllEndpoints) {
  std::vector<std::string> closed;
  const auto results = Run(
      [&](Member& member) {
        return Serve(member, &closed,
                     [](Member& m) { return PartOf(m, "ps"); });
      },
      [](Member& member) -> absl::Status {
        uint64_t first_epoch = 0;
        for (const char* id : {"generator", "discriminator"}) {
          const auto model = OpenModel(member, id, WorkerPart(member), Soon());
          if (!model.ok()) return model.status();
          EXPECT_EQ(model->model_id(), id);
          EXPECT_EQ(model->rank(), member.job().rank());
          EXPECT_EQ(model->spec().optimizer().lr(), 0.02);
          EXPECT_EQ(model->workers(1).endpoints(0), EndpointOf("worker", 1));
          EXPECT_EQ(model->servers(0).endpoints(0), EndpointOf("ps", 0));
          EXPECT_EQ(model->servers(1).endpoints(0), EndpointOf("ps", 1));
          EXPECT_NE(model->job_epoch(), first_epoch);
          first_epoch = model->job_epoch();
        }
        return CloseModel(member, "generator", Soon());
      });
  for (const absl::Status& status : results) EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(closed, ::testing::ElementsAre("generator"));
}

TEST_F(ModelOpeningTest, NamesTheWorkerThatDisagreesAndTheField) {
  ExpectNamed(/*disagrees=*/1, /*name_bytes=*/0);
}

// All of them at once have no room in a message of 16 MiB.
TEST_F(ModelOpeningTest, NamesTheFieldOfLargeSettings) {
  workers_ = 6;
  ExpectNamed(/*disagrees=*/4, /*name_bytes=*/3 << 20);
}

// Its part of the model would go unserved.
TEST_F(ModelOpeningTest, NamesTheServerThatListensNowhere) {
  const auto results = Run(
      [&](Member& member) -> absl::Status {
        const auto next = member.NextAnnouncement();
        if (!next.ok()) return next.status();
        const auto request = ParseModelRequest(**next);
        const bool deaf = member.job().rank() == 1;
        auto model = AnswerModel(
            member, request->model,
            deaf ? proto::ModelPart() : PartOf(member, "ps"), Soon());
        if (!model.ok()) return model.status();
        return member.NextAnnouncement().status();
      },
      [](Member& member) {
        return OpenModel(member, "model", WorkerPart(member), Soon()).status();
      });
  for (const absl::Status& status : results) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ps 1 (host h"), HasSubstr("listens nowhere")));
  }
}

// Workers would open a connection to each.
TEST_F(ModelOpeningTest, NamesTheServerThatListensAtTooManyEndpoints) {
  std::vector<std::string> closed;
  const auto part = [](Member& member) {
    proto::ModelPart most;
    const bool claims_more = member.job().rank() == 1;
    for (int i = 0; i < kMaxShardThreads + claims_more; ++i) {
      most.add_endpoints(EndpointOf("ps", member.job().rank()));
    }
    return most;
  };
  const auto results = Run(
      [&](Member& member) { return Serve(member, &closed, part); },
      [](Member& member) {
        return OpenModel(member, "model", WorkerPart(member), Soon()).status();
      });
  for (const absl::Status& status : results) {
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("ps 1 (host h"),
              HasSubstr("listens at 65 endpoints, but a server has at most "
                        "64")));
  }
}

// Whoever believed it would send the job's gradients there.
TEST_F(ModelOpeningTest, NamesWhoListensWhereItIsNot) {
  for (const char* endpoint :
       {"tcp://10.0.0.7:7000", "tcp://127.0.0.1:0", "tcp://127.0.0.1:70000",
        "ipc:///tmp/x", "\x1b[2J", ""}) {
    const auto results =
        Run([](Member& member) { return member.NextAnnouncement().status(); },
            [&](Member& member) {
              proto::ModelPart part = WorkerPart(member);
              if (member.job().rank() == 1) part.set_endpoints(0, endpoint);
              return OpenModel(member, "model", part, Soon()).status();
            });
    for (const absl::Status& status : results) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("worker 1 (host h"),
                        HasSubstr("not a port of its address, 127.0.0.1")))
          << endpoint;
    }
  }
}

// Servers would take what is pushed there for its own.
TEST_F(ModelOpeningTest, NamesWhoSharesTheMemoryOfAnotherProcess) {
  const auto results =
      Run([](Member& member) { return member.NextAnnouncement().status(); },
          [&](Member& member) {
            proto::ModelPart part = WorkerPart(member);
            if (member.job().rank() == 1) {
              part.mutable_shared_memory()->set_pid(kPid + 1);
            }
            return OpenModel(member, "model", part, Soon()).status();
          });
  for (const absl::Status& status : results) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker 1 (host h"),
                      HasSubstr("which is another process")));
  }
}

TEST_F(ModelOpeningTest, NamesWhoSharesTheSameMemory) {
  const auto results =
      Run([](Member& member) { return member.NextAnnouncement().status(); },
          [&](Member& member) {
            proto::ModelPart part = WorkerPart(member);
            part.mutable_shared_memory()->set_pid(kPid);
            part.mutable_shared_memory()->set_nonce(7);
            return OpenModel(member, "model", part, Soon()).status();
          });
  for (const absl::Status& status : results) {
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("worker 0 (host h"), HasSubstr(" and worker 1 (host h"),
              HasSubstr("share the same memory")));
  }
}

// Worker 0 tells servers of all workers' parts, but who these are they know.
TEST_F(ModelOpeningTest, ServersDoNotAskAWorkerWhoTheWorkersAre) {
  for (const bool steals : {false, true}) {
    const auto results = Run(
        [](Member& member) -> absl::Status {
          const auto next = member.NextAnnouncement();
          if (!next.ok()) return next.status();
          const auto request = ParseModelRequest(**next);
          const auto model =
              AnswerModel(member, request->model, PartOf(member, "ps"), Soon());
          if (!model.ok()) return model.status();
          EXPECT_EQ(model->workers(1).host(), "h");
          EXPECT_EQ(model->workers(1).boot(), member.job().workers(1).boot());
          EXPECT_EQ(model->workers(1).public_key(), "");
          EXPECT_EQ(model->workers(1).shared_memory().pid(), kPid);
          EXPECT_EQ(model->job_epoch(), 5u);
          return member.NextAnnouncement().status();
        },
        [&](Member& member) {
          proto::Welcome model = member.job();
          model.set_model_id("model");
          model.set_job_epoch(5);
          proto::Process& other = *model.mutable_workers(1);
          other.set_host("worker 0's");
          other.set_boot(17);
          other.set_public_key("worker 0's");
          other.mutable_shared_memory()->set_pid(steals ? kPid + 1 : kPid);
          if (member.job().rank() == 0) {
            member.Announce(proto::PS, "open model", model.SerializeAsString());
          }
          return member.AwaitAnnouncement("served model", Soon()).status();
        });
    for (const absl::Status& status : results) {
      EXPECT_EQ(status.ok(), !steals) << status;
      EXPECT_EQ(absl::StrContains(status.message(), "another process"), steals)
          << status;
    }
  }
}

TEST_F(ModelOpeningTest, NamesASettingThatOthersCouldNotRead) {
  const auto results =
      Run([](Member& member) { return member.NextAnnouncement().status(); },
          [&](Member& member) {
            proto::ModelPart part = WorkerPart(member);
            part.mutable_spec()->set_data("mnist-\xff");
            return OpenModel(member, "model", part, Soon()).status();
          });
  for (const absl::Status& status : results) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not UTF-8"));
  }
}

TEST_F(ModelOpeningTest, NamesTheServerThatDoesNotAnswer) {
  const auto results = Run(
      [](Member& member) -> absl::Status {
        const auto next = member.NextAnnouncement();
        if (!next.ok()) return next.status();
        const auto request = ParseModelRequest(**next);
        if (member.job().rank() == 1) {  // sits there until the job has failed
          return member.NextAnnouncement().status();
        }
        return AnswerModel(member, request->model, PartOf(member, "ps"),
                           Now() + absl::Milliseconds(100))
            .status();
      },
      [](Member& member) {
        return OpenModel(member, "model", WorkerPart(member), Soon()).status();
      });
  for (const absl::Status& status : results) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ps 1 (host h"), HasSubstr("open model")));
  }
}

}  // namespace
}  // namespace psring
