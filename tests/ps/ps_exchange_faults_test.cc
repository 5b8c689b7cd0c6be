// What a job of servers makes of workers and servers that do not do their part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/frame.h"
#include "common/state/state_files.h"
#include "ps/piece_table.h"
#include "ps/ps_exchange.h"
#include "ps/shard_map.h"
#include "tests/ps/placed_job.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/local_job.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class PlacementTest : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(All, PlacementTest, ::testing::ValuesIn(kTransports));

TEST(PsExchange, AWorkerThatAReplayAwaitsIsNamed) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::ASYNC, 2);
  options.spec.set_record_dir(absl::StrCat(testing::TestDirectory(), "/log"));
  absl::Notification pushed;
  const auto in_order = [&](LocalWorker& worker) -> absl::Status {
    if (worker.rank == 1) pushed.WaitForNotification();
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    const absl::Status s = Push(worker);
    if (worker.rank == 0) pushed.Notify();
    return s;
  };
  for (const absl::Status& s : RunLocalJob(options, in_order)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  options.spec.set_replay_dir(options.spec.record_dir());
  options.spec.clear_record_dir();
  options.step_timeout = absl::Seconds(1);
  absl::Notification joined;
  const auto without_first = [&](LocalWorker& worker) -> absl::Status {
    if (worker.rank == 1) joined.WaitForNotification();
    const absl::Status s = worker.exchange->Join({}, Soon());
    if (worker.rank == 1) return s.ok() ? Push(worker) : s;
    joined.Notify();
    if (!s.ok()) return s;
    Socket* none = nullptr;
    return Wait(absl::MakeSpan(&none, 0), worker.cancellation, Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, without_first)) {
    EXPECT_THAT(std::string(s.message()),
                AllOf(HasSubstr("worker 0 (host "),
                      HasSubstr(") has not pushed step 0, bucket ")));
  }
}

TEST_P(PlacementTest, AWorkerThatDoesNotPushIsNamed) {
  LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2), GetParam());
  options.step_timeout = absl::Seconds(1);
  const auto body = [](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    if (worker.rank == 1) {  // sits there until the job has failed
      Socket* none = nullptr;
      return Wait(absl::MakeSpan(&none, 0), worker.cancellation, Soon());
    }
    FillGradients(worker, 0);
    for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
      if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
    }
    return worker.exchange->Finish(Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_THAT(std::string(s.message()),
                AllOf(HasSubstr("worker 1 (host "),
                      HasSubstr(") has not pushed step 0, bucket "),
                      HasSubstr("its last message came")));
  }
}

// Sends what worker 0 may not send to that shard, each on a connection of its
// own; returns how many. All of it has been taken then.
int SendMalformed(LocalWorker& worker, const ShardPlace& shard,
                  std::deque<HostilePeer>& strangers) {
  const proto::Welcome& job = worker.client->job();
  const HostilePeer::Login login = {worker.job->context().public_key(),
                                    job.servers(shard.server).public_key()};
  const Piece piece =
      PiecesOfShard(worker.model.layout, shard.ranges, kPieceElements).front();
  for (int attack = 0; attack < 9; ++attack) {
    proto::WireHeader header;
    header.set_kind(proto::WireHeader::PUSH);
    header.set_job_epoch(job.job_epoch() + (attack == 1 ? 1 : 0));
    header.set_sender(attack == 2 ? 99 : 0);
    header.set_step(attack == 3 ? 1000000 : worker.exchange->step());
    header.set_bucket(piece.bucket + (attack == 4 ? 77 : 0));
    header.set_offset(piece.range.begin + (attack == 5 ? 3 : 0));
    header.set_num_elements(attack == 6 ? uint64_t{1} << 62
                                        : piece.range.size());
    header.set_dtype(attack == 7 ? proto::WireHeader::BYTES
                                 : proto::WireHeader::FLOAT32);
    std::vector<std::string> frames = {
        attack == 0 ? "garbage" : header.SerializeAsString(),
        std::string(piece.range.size() * sizeof(float), 'x')};
    if (attack == 8) frames.push_back("one too many");
    HostilePeer& stranger = strangers.emplace_back(shard.endpoint, login);
    stranger.Send(frames);
    EXPECT_TRUE(stranger.AwaitTaken(Soon())) << attack;
  }
  return 9;
}

// Garbage, another job's epoch, wrong sizes, steps, buckets and types, a worker
// that does not exist: in the middle of training, at every shard.
TEST_P(PlacementTest, MalformedPeersAreDroppedAndDoNotDisturbTraining) {
  const LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2, 2), GetParam());
  const Finals undisturbed = Train(options, 8);
  const CapturedLog log;
  std::deque<HostilePeer> strangers;
  std::map<std::string, int> malformed;  // by a shard's endpoint
  const auto all_dropped = [&] {
    return absl::c_all_of(malformed, [&](const auto& shard) {
      return log.Count(absl::StrCat(" of ", shard.first, ": ")) == shard.second;
    });
  };
  Finals finals(2);
  const auto before = TrainBody(4, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = before(worker); !s.ok()) return s;
    if (worker.rank == 0) {
      for (const ShardPlace& shard :
           MapShards(worker.model.layout, worker.client->job())) {
        malformed[shard.endpoint] = SendMalformed(worker, shard, strangers);
      }
    }
    while (worker.exchange->step() < 8) {
      FillGradients(worker, worker.exchange->step());
      if (absl::Status s = Push(worker); !s.ok()) return s;
    }
    finals[worker.rank] = ParametersOf(worker);
    // A shard that serves shared memory looks at messages now and then.
    const Time soon = Soon();
    while (worker.rank == 0 && !all_dropped() && Now() < soon) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_EQ(finals, undisturbed);
  EXPECT_THAT(malformed, SizeIs(2));
  EXPECT_TRUE(all_dropped());
}

// Every server refuses; none of their answers comes into the next step.
TEST(PsExchange, ASaveThatFailsDisturbsNoStep) {
  std::vector<std::vector<float>> finals(1);
  const auto train = TrainBody(2, &finals);
  const std::string folder = testing::TestDirectory();
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = train(worker); !s.ok()) return s;
    GradientExchange& exchange = *worker.exchange;
    const absl::Status saved =
        exchange.SaveState(folder + "/none", Soon()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(saved)) << saved;
    EXPECT_THAT(std::string(saved.message()), HasSubstr(folder + "/none"));
    for (int step = 2; step < 4; ++step) {
      FillGradients(worker, step);
      for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
        if (absl::Status s = exchange.Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = exchange.Finish(Soon()); !s.ok()) return s;
    }
    const std::vector<std::string> slots = {"momentum_buffer"};
    // Its answer comes late, and is not taken for the next one's. On a busy
    // machine it may be there before this thread looks.
    absl::Status late;
    for (int i = 0; i < 100 && late.ok(); ++i) {
      late = exchange.CheckSaveDirectory(folder, Time());
    }
    EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
    const auto state =
        SaveStateFiles(exchange, folder, worker.model.layout, slots, Soon());
    EXPECT_GE(state->runs_size(), 6);  // of three servers, in two files
    return state.status();
  };
  for (const absl::Status& s :
       RunLocalJob(Options(proto::PARAMETER_SERVER, proto::BSP, 1, 3), body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// Of small buckets every server's part is edges (state_files.h): far more than
// a message holds.
TEST(PsExchange, ASaveOfManyPartsTakesSeveralMessages) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1, 2);
  options.spec.clear_tensors();
  for (int i = 0; i < 200; ++i) {
    proto::TensorShape* tensor = options.spec.add_tensors();
    tensor->set_name(absl::StrCat("t", i));
    tensor->add_shape(16384);
  }
  options.spec.set_bucket_bytes(1);
  std::vector<std::vector<float>> finals(1);
  const auto train = TrainBody(1, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = train(worker); !s.ok()) return s;
    const std::string folder = testing::TestDirectory();
    const std::vector<std::string> slots = {"momentum_buffer"};
    const Layout& layout = worker.model.layout;
    const auto state =
        SaveStateFiles(*worker.exchange, folder, layout, slots, Soon());
    if (!state.ok()) return state.status();
    int64_t in_edges = 0;
    for (const auto& edge : state->edges()) in_edges += edge.data().size();
    EXPECT_GT(in_edges, 4 * kMaxPayloadBytes);
    std::vector<float> parameters(layout.num_elements());
    std::vector<float> momentum(layout.num_elements());
    float* const into[] = {momentum.data()};
    std::vector<ExtraTensor> extras;
    absl::Status read =
        ReadStateFiles(folder, layout, slots, parameters.data(), into, &extras);
    EXPECT_EQ(parameters, finals[0]);
    return read;
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// The only shard of a model, as the test answers for it: `answers` of a step
// gets the pieces that have been pushed, when all have, and says for which of
// them the parameters come back, in which order. Pulls are treated alike, or
// each is answered at once, as a server does.
class AnsweringServer {
 public:
  using Answers =
      std::function<std::vector<int>(int64_t step, std::vector<int> pieces)>;

  AnsweringServer(const Layout& layout, Answers answers,
                  bool pulls_at_once = false)
      : pieces_(layout, {{0, layout.num_elements()}}),
        answers_(std::move(answers)),
        pulls_at_once_(pulls_at_once),
        thread_([this] { Serve(); }) {
    endpoint_ = bound_.get_future().get();
  }
  ~AnsweringServer() {
    stop_.Cancel(absl::CancelledError("the test is over"));
    thread_.join();
  }

  const std::string& endpoint() const { return endpoint_; }
  int num_pieces() const { return pieces_.size(); }
  // Of the step that not all pieces have come of.
  int num_asked() const { return num_asked_; }

 private:
  void Serve() {
    Context context;
    const auto socket =
        *Socket::Bind(context, "127.0.0.1", 0, DataSocketOptions());
    bound_.set_value(socket->endpoint());
    std::map<int, DataMessage> asked;  // by piece
    while (Wait({socket.get()}, stop_, Soon()).ok()) {
      while (auto frames = *socket->TryReceive()) {
        auto message = *ParseData(*std::move(frames), /*at_router=*/true);
        if (message.header.kind() == proto::WireHeader::INIT) continue;
        const int piece =
            *pieces_.Find(message.header, proto::WireHeader::FLOAT32);
        if (pulls_at_once_ &&
            message.header.kind() == proto::WireHeader::PULL) {
          Answer(*socket, piece, message, /*step=*/-1);
          continue;
        }
        asked[piece] = std::move(message);
      }
      num_asked_ = static_cast<int>(asked.size());
      if (static_cast<int>(asked.size()) < pieces_.size()) continue;
      AnswerAll(*socket, asked);
      asked.clear();
    }
  }

  // Parameters are the number of the step, or -1 where they were pulled.
  void AnswerAll(Socket& socket, const std::map<int, DataMessage>& asked) {
    std::vector<int> pieces;
    for (const auto& [piece, message] : asked) pieces.push_back(piece);
    const bool pull = asked.at(0).header.kind() == proto::WireHeader::PULL;
    const int64_t step = pull ? -1 : asked.at(0).header.step();
    for (int piece : answers_(step, pieces)) {
      Answer(socket, piece, asked.at(piece), step);
    }
  }

  void Answer(Socket& socket, int piece, const DataMessage& asked,
              int64_t step) {
    DataMessage reply;
    reply.peer = asked.peer;
    reply.header = asked.header;
    reply.header.set_kind(proto::WireHeader::PARAMS);
    reply.header.set_step(step);
    const int64_t size = pieces_[piece].range.size();
    reply.header.set_num_elements(static_cast<uint64_t>(size));
    const std::vector<float> values(size, static_cast<float>(step));
    reply.payload = Frame::Copy({reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(float)});
    EXPECT_TRUE(SendData(socket, std::move(reply)).ok());
  }

  const PieceTable pieces_;
  const Answers answers_;
  const bool pulls_at_once_;
  Cancellation stop_;
  std::atomic<int> num_asked_ = 0;
  std::promise<std::string> bound_;
  std::string endpoint_;
  std::thread thread_;
};

// All pieces go into the window of what may be sent before an answer.
proto::JobSpec SpecOfThreePieces() {
  proto::JobSpec spec = SmallSpec(proto::PARAMETER_SERVER, proto::BSP);
  spec.clear_tensors();
  for (const char* name : {"a", "b", "c"}) {
    proto::TensorShape* tensor = spec.add_tensors();
    tensor->set_name(name);
    tensor->add_shape(1000);
  }
  return spec;
}

// Takes 16 messages, which it then acknowledges, `every` so long.
void TakeSlowly(Socket& socket, const Cancellation& stop,
                absl::Duration every) {
  while (stop.status().ok()) {
    for (int taken = 0; taken < 16;) {
      const auto frames = socket.TryReceive();
      if (!frames.ok() || !stop.status().ok()) return;
      if (frames->has_value()) {
        ++taken;
      } else {
        Wait({&socket}, stop, Soon()).IgnoreError();
      }
    }
    absl::SleepFor(every);
  }
}

// They are copies: a large model would lie in memory twice. Whoever takes them,
// however slowly, is not late.
TEST(PsExchange, HandsTheFirstParametersInAsTheServerTakesThem) {
  constexpr int kPieces = 300;
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1);
  options.spec = SmallSpec(proto::PARAMETER_SERVER, proto::BSP);
  options.spec.clear_tensors();
  for (int i = 0; i < kPieces; ++i) {
    proto::TensorShape* tensor = options.spec.add_tensors();
    tensor->set_name(absl::StrCat("piece", i));
    tensor->add_shape(1000);
  }
  options.spec.set_bucket_bytes(4000);
  options.same_host = SameHost::kOff;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    const auto join = [&](bool takes, absl::Duration patience,
                          Traffic* traffic) -> absl::Status {
      Context context;
      Cancellation stop;
      std::promise<std::string> bound;
      std::thread server([&] {
        const auto socket =
            *Socket::Bind(context, "127.0.0.1", 0, DataSocketOptions());
        bound.set_value(socket->endpoint());
        if (takes) {
          TakeSlowly(*socket, stop, absl::Milliseconds(300));
        } else {
          Wait(absl::Span<Socket* const>(), stop, Soon()).IgnoreError();
        }
      });
      proto::Welcome job = worker.client->job();
      job.mutable_servers(0)->set_endpoints(0, bound.get_future().get());
      auto exchange = PsExchange::Create(worker.context, worker.cancellation,
                                         *worker.member, job, worker.model);
      if (!exchange.ok()) return exchange.status();
      const absl::Status joined = (*exchange)->Join({}, Now() + patience);
      *traffic = (*exchange)->traffic();
      stop.Cancel(absl::CancelledError("the test is over"));
      server.join();
      return joined;
    };
    Traffic none, all;
    const absl::Status late = join(false, absl::Milliseconds(300), &none);
    EXPECT_THAT(std::string(late.message()),
                AllOf(HasSubstr("ps 0 (host "),
                      HasSubstr("has not taken the first parameters in time")));
    // Pulls come last, and are not answered.
    const absl::Status unanswered = join(true, absl::Seconds(4), &all);
    EXPECT_THAT(std::string(unanswered.message()),
                HasSubstr("no answer in time for the first parameters"));
    EXPECT_GE(all.sent, kPieces * 4000);
    EXPECT_LT(none.sent, all.sent / 3);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

TEST(PsExchange, WhatIsLateIsNamedWithItsFolder) {
  const std::string folder = testing::TestDirectory();
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1);
  options.spec = SpecOfThreePieces();
  options.same_host = SameHost::kOff;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    Context context;
    const auto silent =
        *Socket::Bind(context, "127.0.0.1", 0, DataSocketOptions());
    proto::Welcome job = worker.client->job();
    job.mutable_servers(0)->set_endpoints(0, silent->endpoint());
    auto exchange = PsExchange::Create(worker.context, worker.cancellation,
                                       *worker.member, job, worker.model);
    if (!exchange.ok()) return exchange.status();
    const auto soon = [] { return Now() + absl::Milliseconds(300); };
    EXPECT_THAT(
        std::string(
            (*exchange)->SaveState("/saved", soon()).status().message()),
        StartsWith("no answer in time for a checkpoint in /saved from ps 0 "));
    EXPECT_THAT(
        std::string((*exchange)->CheckSaveDirectory(folder, soon()).message()),
        StartsWith(absl::StrCat("no answer in time for a test whether it can "
                                "write to ",
                                folder, " from ps 0 ")));
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// Otherwise a server would hold the whole model for each worker that has asked.
TEST(PsExchange, AsksForAFewPiecesAtATime) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1);
  options.spec = SpecOfThreePieces();
  for (int i = 0; i < 20; ++i) {
    proto::TensorShape* tensor = options.spec.add_tensors();
    tensor->set_name(absl::StrCat("more", i));
    tensor->add_shape(1000);
  }
  options.same_host = SameHost::kOff;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    // It answers when all pieces have been asked for, which never comes.
    AnsweringServer server(
        worker.model.layout,
        [](int64_t step, std::vector<int> pieces) { return pieces; });
    EXPECT_GT(server.num_pieces(), kWindowPieces);
    proto::Welcome job = worker.client->job();
    job.mutable_servers(0)->set_endpoints(0, server.endpoint());
    auto exchange = PsExchange::Create(worker.context, worker.cancellation,
                                       *worker.member, job, worker.model);
    if (!exchange.ok()) return exchange.status();
    const absl::Status late =
        (*exchange)->Join({}, Now() + absl::Milliseconds(300));
    EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
    const Time deadline = Soon();
    while (server.num_asked() < kWindowPieces && Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(server.num_asked(), kWindowPieces);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// A server holds what a worker pushes until the others have pushed it too.
TEST(PsExchange, AWorkerThatIsAheadPushesSoManyPieces) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1);
  options.spec = SpecOfThreePieces();
  options.spec.set_bucket_bytes(4000);
  for (int i = 0; i < 2 * kEarlyWindowPieces; ++i) {
    proto::TensorShape* tensor = options.spec.add_tensors();
    tensor->set_name(absl::StrCat("more", i));
    tensor->add_shape(1000);
  }
  options.same_host = SameHost::kOff;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    AnsweringServer server(
        worker.model.layout,
        [](int64_t step, std::vector<int> pieces) { return pieces; },
        /*pulls_at_once=*/true);
    proto::Welcome job = worker.client->job();
    job.mutable_servers(0)->set_endpoints(0, server.endpoint());
    auto exchange = *PsExchange::Create(worker.context, worker.cancellation,
                                        *worker.member, job, worker.model);
    if (absl::Status s = exchange->Join({}, Soon()); !s.ok()) return s;
    EXPECT_GT(worker.model.layout.num_buckets(), kEarlyWindowPieces);
    for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
      if (absl::Status s = exchange->Submit(b); !s.ok()) return s;
      absl::SleepFor(absl::Milliseconds(3));  // as backward does
    }
    const Time deadline = Soon();
    while (server.num_asked() < kEarlyWindowPieces && Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        exchange->Finish(Now() + absl::Milliseconds(300))));
    EXPECT_EQ(server.num_asked(), kEarlyWindowPieces);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

TEST(PsExchange, AnAnswerThatComesTwiceHidesNoneThatIsMissing) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::BSP, 1);
  options.spec = SpecOfThreePieces();
  options.same_host = SameHost::kOff;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    FlatModel& model = worker.model;
    AnsweringServer server(model.layout,
                           [](int64_t step, std::vector<int> pieces) {
                             if (step == 0)
                               return std::vector<int>{2, 0, 0, 1, 2, 1, 2};
                             if (step == 2) return std::vector<int>{0, 2, 0};
                             return pieces;
                           });
    EXPECT_EQ(server.num_pieces(), 3);
    proto::Welcome job = worker.client->job();
    job.mutable_servers(0)->set_endpoints(0, server.endpoint());
    auto exchange = PsExchange::Create(worker.context, worker.cancellation,
                                       *worker.member, job, model);
    if (!exchange.ok()) return exchange.status();
    if (absl::Status s = (*exchange)->Join({}, Soon()); !s.ok()) return s;
    const auto push = [&](Time deadline) {
      for (int b = 0; b < model.layout.num_buckets(); ++b) {
        if (absl::Status s = (*exchange)->Submit(b); !s.ok()) return s;
      }
      return (*exchange)->Finish(deadline);
    };
    // The first step's repeats, some of which come into the second, do no harm.
    for (int step : {0, 1}) {
      if (absl::Status s = push(Soon()); !s.ok()) return s;
      EXPECT_THAT(ParametersOf(worker), Each(static_cast<float>(step)));
    }
    const auto patience = [] { return Now() + absl::Milliseconds(300); };
    absl::Status missing = push(patience());
    const Time deadline = Soon();
    while (absl::IsDeadlineExceeded(missing) && Now() < deadline &&
           !absl::StrContains(missing.message(), "(1 pieces)")) {
      missing = (*exchange)->Finish(patience());  // more is on its way
    }
    EXPECT_TRUE(absl::IsDeadlineExceeded(missing)) << missing;
    EXPECT_THAT(std::string(missing.message()), HasSubstr("(1 pieces)"));
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

}  // namespace
}  // namespace psring
