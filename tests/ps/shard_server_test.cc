#include "ps/shard_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using proto::WireHeader;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> FloatsOf(const DataMessage& message) {
  std::vector<float> values(message.payload.size() / sizeof(float));
  std::memcpy(values.data(), message.payload.data(), message.payload.size());
  return values;
}

// A worker's connection to the shard.
class Worker {
 public:
  Worker(Context& context, const std::string& endpoint)
      : socket_(*Socket::Connect(context, endpoint, DataSocketOptions())) {}

  void Send(const WireHeader& header, const std::string& payload) {
    DataMessage message;
    message.header = header;
    message.payload = Frame::Copy(payload);
    ASSERT_TRUE(SendData(*socket_, std::move(message)).ok());
  }

  DataMessage Receive() {
    const Time deadline = Soon();
    while (Now() < deadline) {
      auto frames = socket_->TryReceive();
      if (frames.ok() && frames->has_value()) {
        auto message = ParseData(*std::move(*frames), /*at_router=*/false);
        EXPECT_TRUE(message.ok()) << message.status();
        if (message.ok()) return *std::move(message);
      }
      Wait({socket_.get()}, absl::Span<const int>(), deadline).IgnoreError();
    }
    ADD_FAILURE() << "no answer";
    return {};
  }

 private:
  const std::unique_ptr<Socket> socket_;
};

// Two workers, one shard of 80 parameters in two pieces, plain sgd with rate
// 0.5.
class ShardServerTest : public ::testing::Test {
 protected:
  ShardServerTest() {
    job_.set_job_epoch(99);
    job_.set_rank(3);
    for (int w = 0; w < 2; ++w) {
      proto::Process& worker = *job_.add_workers();
      worker.set_role(proto::WORKER);
      worker.set_rank(w);
      worker.set_host("b");
      worker.set_pid(4711);
    }
    spec().set_sync(proto::BSP);
    spec().mutable_optimizer()->set_name("sgd");
    spec().mutable_optimizer()->set_lr(0.5);
    spec().mutable_optimizer()->mutable_schedule()->set_kind("constant");
    options_.steps.step_timeout = absl::Minutes(10);
  }
  ~ShardServerTest() override { Stop(); }

  proto::JobSpec& spec() { return *job_.mutable_spec(); }

  static Layout LayoutOfTwo() {
    std::vector<proto::TensorShape> tensors(2);
    tensors[0].set_name("a");
    tensors[0].add_shape(40);
    tensors[1].set_name("b");
    tensors[1].add_shape(20);
    return *Layout::Create(tensors, 1);
  }

  void Start() {
    options_.job = job_;
    shard_ = std::make_unique<Shard>(
        *Shard::Create({{0, 80}}, *Optimizer::Create(spec().optimizer())));
    std::promise<std::string> bound;
    auto endpoint = bound.get_future();
    thread_ = std::thread([this, b = std::move(bound)]() mutable {
      const auto socket =
          Socket::Bind(context_, "127.0.0.1", 0, DataSocketOptions());
      b.set_value((*socket)->endpoint());
      ShardServer server(**socket, *doorbell_, options_, layout_, *shard_);
      result_ = server.Run(stop_);
      malformed_ = server.malformed();
      ended_.Notify();
    });
    endpoint_ = endpoint.get();
  }

  // Started, with all parameters 1.
  void StartInitialised() {
    Start();
    Worker zero(context_, endpoint_);
    for (int piece : {0, 1}) {
      zero.Send(Header(WireHeader::INIT, piece), Floats(piece, 1.0f));
    }
    EXPECT_THAT(FloatsOf(Pull(zero, 0)), Each(1.0f));
  }

  void Stop() {
    stop_.Cancel(absl::CancelledError("the test is over"));
    if (thread_.joinable()) thread_.join();
  }

  // Well-formed, from worker 0.
  WireHeader Header(WireHeader::Kind kind, int piece, int sender = 0) const {
    WireHeader header;
    header.set_kind(kind);
    header.set_job_epoch(99);
    header.set_sender(static_cast<uint32_t>(sender));
    header.set_bucket(static_cast<uint32_t>(pieces_[piece].bucket));
    header.set_offset(static_cast<uint64_t>(pieces_[piece].range.begin));
    header.set_dtype(WireHeader::FLOAT32);
    if (kind != WireHeader::PULL) {
      header.set_num_elements(
          static_cast<uint64_t>(pieces_[piece].range.size()));
    }
    return header;
  }
  std::string Floats(int piece, float value) const {
    const std::vector<float> values(pieces_[piece].range.size(), value);
    return {reinterpret_cast<const char*>(values.data()),
            values.size() * sizeof(float)};
  }

  DataMessage Pull(Worker& worker, int piece) {
    worker.Send(Header(WireHeader::PULL, piece), "");
    return worker.Receive();
  }
  void Push(Worker& worker, int rank, int64_t step, int piece, float gradient) {
    WireHeader header = Header(WireHeader::PUSH, piece, rank);
    header.set_step(step);
    worker.Send(header, Floats(piece, gradient));
  }
  std::string AnswerTo(WireHeader::Kind kind, const std::string& directory) {
    Worker worker(context_, endpoint_);
    WireHeader header;
    header.set_kind(kind);
    header.set_job_epoch(99);
    header.set_dtype(WireHeader::BYTES);
    header.set_num_elements(directory.size());
    worker.Send(header, directory);
    const DataMessage answer = worker.Receive();
    EXPECT_EQ(answer.header.kind(), WireHeader::DONE);
    return std::string(answer.payload.view());
  }

  const Layout layout_ = LayoutOfTwo();
  const PieceTable pieces_{layout_, {{0, 80}}};
  std::unique_ptr<Shard> shard_;  // outlives the context: is sent from
  Context context_;
  const std::unique_ptr<Doorbell> doorbell_ = *Doorbell::Create();
  proto::Welcome job_;
  ShardServerOptions options_;
  Cancellation stop_;
  std::string endpoint_;
  absl::Notification ended_;
  absl::Status result_;     // valid once it has ended
  int64_t malformed_ = -1;  // the same
  std::thread thread_;
};

// The parameters of a large model come back while others still arrive.
TEST_F(ShardServerTest, AnswersAPullOnceThePiecesFirstParametersAreThere) {
  Start();
  Worker zero(context_, endpoint_);
  zero.Send(Header(WireHeader::PULL, 0), "");
  zero.Send(Header(WireHeader::PULL, 1), "");
  zero.Send(Header(WireHeader::INIT, 1), Floats(1, 5.0f));
  const DataMessage answer = zero.Receive();
  EXPECT_EQ(answer.header.kind(), WireHeader::PARAMS);
  EXPECT_EQ(answer.header.job_epoch(), 99u);
  EXPECT_EQ(answer.header.sender(), 3u);
  EXPECT_EQ(answer.header.step(), -1);
  EXPECT_EQ(answer.header.next_step(), 0);
  EXPECT_EQ(answer.header.offset(),
            static_cast<uint64_t>(pieces_[1].range.begin));
  EXPECT_EQ(FloatsOf(answer), std::vector<float>(48, 5.0f));
  zero.Send(Header(WireHeader::INIT, 0), Floats(0, 4.0f));
  EXPECT_EQ(zero.Receive().header.offset(),
            static_cast<uint64_t>(pieces_[0].range.begin));
  // A repeat does not undo what has happened since.
  zero.Send(Header(WireHeader::INIT, 0), Floats(0, 9.0f));
  EXPECT_EQ(FloatsOf(Pull(zero, 0)), std::vector<float>(32, 4.0f));
  Stop();
  EXPECT_TRUE(result_.ok()) << result_;
  EXPECT_EQ(malformed_, 0);
}

// However often it asks, memory does not grow.
TEST_F(ShardServerTest, AnswersAWorkersEarlyPullsOfAPieceOnce) {
  Start();
  Worker zero(context_, endpoint_);
  for (int i = 0; i < 3; ++i) zero.Send(Header(WireHeader::PULL, 1), "");
  for (int piece : {0, 1}) {
    zero.Send(Header(WireHeader::INIT, piece), Floats(piece, 1.0f));
  }
  zero.Send(Header(WireHeader::PULL, 0), "");
  for (int piece : {1, 0}) {
    EXPECT_EQ(zero.Receive().header.offset(),
              static_cast<uint64_t>(pieces_[piece].range.begin));
  }
}

TEST_F(ShardServerTest, AResumedJobWaitsForTheOptimizersStateToo) {
  spec().set_first_step(5);
  spec().mutable_optimizer()->set_name("momentum");
  spec().mutable_optimizer()->set_momentum(0.9);
  Start();
  Worker zero(context_, endpoint_);
  zero.Send(Header(WireHeader::PULL, 0), "");
  for (int piece : {0, 1}) {
    zero.Send(Header(WireHeader::INIT, piece), Floats(piece, 1.0f));
  }
  WireHeader probe = Header(WireHeader::PROBE_DIR, 0);
  probe.set_dtype(WireHeader::BYTES);
  probe.set_num_elements(1);
  probe.set_sequence(7);
  zero.Send(probe, "/");
  const DataMessage probed = zero.Receive();
  EXPECT_EQ(probed.header.kind(), WireHeader::DONE);  // no PARAMS yet
  EXPECT_EQ(probed.header.sequence(), 7u);
  for (int piece : {0, 1}) {
    WireHeader state = Header(WireHeader::INIT, piece);
    state.set_slot(1);
    zero.Send(state, Floats(piece, 0.0f));
  }
  const DataMessage answer = zero.Receive();
  EXPECT_EQ(answer.header.kind(), WireHeader::PARAMS);
  EXPECT_EQ(answer.header.next_step(), 5);
}

TEST_F(ShardServerTest, AnswersPushesOnceEveryWorkerHasPushedThePiece) {
  StartInitialised();
  Worker zero(context_, endpoint_), one(context_, endpoint_);
  Push(zero, 0, 0, 1, 1.0f);
  Push(one, 1, 0, 1, 3.0f);
  for (Worker* worker : {&zero, &one}) {
    const DataMessage answer = worker->Receive();
    EXPECT_EQ(answer.header.kind(), WireHeader::PARAMS);
    EXPECT_EQ(answer.header.step(), 0);
    EXPECT_EQ(answer.header.next_step(), 1);
    EXPECT_EQ(FloatsOf(answer), std::vector<float>(48, 0.0f));
  }
  EXPECT_THAT(FloatsOf(Pull(zero, 0)), Each(1.0f));  // another piece
}

// Its answer may have been lost.
TEST_F(ShardServerTest, AnswersARepeatAgainAndCountsItOnce) {
  StartInitialised();
  Worker zero(context_, endpoint_), one(context_, endpoint_);
  Push(zero, 0, 0, 0, 2.0f);
  Push(zero, 0, 0, 0, 2.0f);
  Push(one, 1, 0, 0, 2.0f);
  EXPECT_THAT(FloatsOf(zero.Receive()), Each(0.0f));
  Push(zero, 0, 0, 0, 2.0f);
  const DataMessage again = zero.Receive();
  EXPECT_EQ(again.header.step(), 0);
  EXPECT_THAT(FloatsOf(again), Each(0.0f));
}

TEST_F(ShardServerTest, DropsNamesAndCountsMalformedPeers) {
  StartInitialised();
  // Why it is malformed, and its frames.
  std::vector<std::pair<std::string, std::vector<std::string>>> malformed = {
      {"2 frames where 3", {"alone"}},
      {"4 frames where 3", {"", "", ""}},
      {"a header of 7 bytes that is not", {"garbage", ""}}};
  const auto add = [&](const std::string& why, WireHeader header,
                       void (*spoil)(WireHeader&)) {
    spoil(header);
    malformed.push_back({why,
                         {header.SerializeAsString(),
                          header.num_elements() == 0 ? "" : Floats(0, 1.0f)}});
  };
  const WireHeader push = Header(WireHeader::PUSH, 0, 1);
  const WireHeader init = Header(WireHeader::INIT, 0);
  add("unknown kind 77", push,
      [](WireHeader& h) { h.set_kind(static_cast<WireHeader::Kind>(77)); });
  add("unknown dtype 0", push, [](WireHeader& h) { h.clear_dtype(); });
  add("the header says 4611686018427387904 elements", push,
      [](WireHeader& h) { h.set_num_elements(uint64_t{1} << 62); });
  add("a message of another job", push,
      [](WireHeader& h) { h.set_job_epoch(98); });
  add("worker 2 of a job of 2", push, [](WireHeader& h) { h.set_sender(2); });
  add("PARAMS is not for a server", push,
      [](WireHeader& h) { h.set_kind(WireHeader::PARAMS); });
  add("SEGMENT is not for a server", push,
      [](WireHeader& h) { h.set_kind(WireHeader::SEGMENT); });
  add("no piece of this shard begins there", push,
      [](WireHeader& h) { h.set_offset(h.offset() + 1); });
  add("wrong bucket, type (FLOAT32)", Header(WireHeader::PULL, 0),
      [](WireHeader& h) { h.set_bucket(1); });
  add("wrong bucket, type (ENCODED)", push,
      [](WireHeader& h) { h.set_dtype(WireHeader::ENCODED); });
  add("slot 0 from worker 1", init, [](WireHeader& h) { h.set_sender(1); });
  add("slot -1 from worker 0", init,
      [](WireHeader& h) { h.set_slot(0xffffffff); });
  add("PULL of slot 1 from worker 1: worker 0 alone",
      Header(WireHeader::PULL, 0), [](WireHeader& h) {
        h.set_sender(1);
        h.set_slot(1);
      });
  add("PULL of slot 4294967295 from worker 0", Header(WireHeader::PULL, 0),
      [](WireHeader& h) { h.set_slot(0xffffffff); });
  add("worker 1 pushes step 7 of bucket 0 out of turn", push,
      [](WireHeader& h) { h.set_step(7); });
  for (const auto kind : {WireHeader::SAVE, WireHeader::PROBE_DIR}) {
    WireHeader header = push;
    header.set_kind(kind);
    header.set_dtype(WireHeader::BYTES);
    header.set_num_elements(4);
    malformed.push_back({absl::StrCat(WireHeader::Kind_Name(kind),
                                      " from worker 1: worker 0 alone"),
                         {header.SerializeAsString(), "/tmp"}});
  }

  const CapturedLog log;
  std::deque<HostilePeer> strangers;
  for (const auto& [why, frames] : malformed) {
    HostilePeer& stranger = strangers.emplace_back(endpoint_);
    stranger.Send(frames);
    ASSERT_TRUE(stranger.AwaitTaken(Soon())) << why;
  }
  Worker zero(context_, endpoint_), one(context_, endpoint_);
  Push(zero, 0, 0, 0, 1.0f);
  Push(one, 1, 0, 0, 3.0f);
  EXPECT_THAT(FloatsOf(zero.Receive()), Each(0.0f));
  EXPECT_THAT(FloatsOf(Pull(zero, 1)), Each(1.0f));
  Stop();
  EXPECT_TRUE(result_.ok()) << result_;
  EXPECT_EQ(malformed_, static_cast<int64_t>(malformed.size()));
  for (const auto& [why, frames] : malformed) EXPECT_EQ(log.Count(why), 1);
  EXPECT_EQ(log.Count(absl::StrCat(" of ", endpoint_, ": ")), malformed_);
}

TEST_F(ShardServerTest, HearsADroppedPeerNoMore) {
  StartInitialised();
  HostilePeer stranger(endpoint_);
  stranger.Send({"garbage", ""});
  stranger.Send(Header(WireHeader::PULL, 0), "");
  stranger.Send(Header(WireHeader::PUSH, 0, 1), Floats(0, 3.0f));
  ASSERT_TRUE(stranger.AwaitTaken(Soon()));
  Worker zero(context_, endpoint_);
  Push(zero, 0, 0, 0, 1.0f);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(FloatsOf(Pull(zero, 0)), Each(1.0f));
  ASSERT_TRUE(stranger.AwaitTaken(Soon()));
  EXPECT_EQ(stranger.Receive(Now()), std::nullopt);
  Stop();
  EXPECT_EQ(malformed_, 1);
}

TEST_F(ShardServerTest, RefusesPushesAndSavesBeforeTheFirstParameters) {
  Start();
  HostilePeer pusher(endpoint_), saver(endpoint_), puller(endpoint_);
  pusher.Send(Header(WireHeader::PUSH, 0, 1), Floats(0, 3.0f));
  ASSERT_TRUE(pusher.AwaitTaken(Soon()));
  WireHeader save = Header(WireHeader::SAVE, 0);
  save.set_dtype(WireHeader::BYTES);
  save.set_num_elements(4);
  saver.Send(save, "/tmp");
  ASSERT_TRUE(saver.AwaitTaken(Soon()));
  WireHeader pull = Header(WireHeader::PULL, 0);
  pull.set_slot(1);
  puller.Send(pull, "");
  ASSERT_TRUE(puller.AwaitTaken(Soon()));
  const std::string directory = testing::TestDirectory();
  testing::WriteFile(directory + "/seen", "");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(AnswerTo(WireHeader::PROBE_DIR, directory + "/seen"), "");
  }
  Stop();
  EXPECT_EQ(malformed_, 3);
}

TEST_F(ShardServerTest, AnswersWhereItCannotWriteWithTheReason) {
  StartInitialised();
  EXPECT_THAT(AnswerTo(WireHeader::PROBE_DIR, "/no/such/place/file"),
              HasSubstr("cannot write into /no/such/place"));
  // A folder of that name, but this host's own.
  const std::string directory = testing::TestDirectory();
  EXPECT_THAT(AnswerTo(WireHeader::PROBE_DIR, directory + "/worker-0s"),
              AllOf(HasSubstr(directory + "/worker-0s"),
                    HasSubstr("must be one that all hosts share")));
  EXPECT_THAT(AnswerTo(WireHeader::SAVE, "/no/such/place"),
              HasSubstr("/no/such/place"));
  Stop();
  EXPECT_TRUE(result_.ok()) << result_;
  EXPECT_EQ(malformed_, 0);
}

TEST_F(ShardServerTest, EndsWithTheNameOfAWorkerThatIsLate) {
  options_.steps.step_timeout = absl::Milliseconds(10);
  StartInitialised();
  Worker zero(context_, endpoint_);
  Push(zero, 0, 0, 1, 1.0f);
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(Soon() - Now()));
  Stop();
  EXPECT_EQ(result_.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result_.message()),
              AllOf(HasSubstr("worker 1 (host b, pid 4711)"),
                    HasSubstr("has not pushed step 0, bucket 1 within 10ms")));
}

// Worker 1 shares this host with the shard.
class ArenaTest : public ShardServerTest {
 protected:
  ~ArenaTest() override { Stop(); }  // the server uses what is here

  void StartWithArena() {
    *job_.mutable_workers(1)->mutable_shared_memory() = arena_->address();
    workers_ = FindHostWorkers(layout_, job_);
    options_.host_workers = workers_;
    StartInitialised();
    EXPECT_EQ(arena_->shard(0).attached.load(), 1u);
    arena_->shard(0).used.store(1);
  }

  void PushInArena(int bucket, int64_t step) {
    arena_->pushed(bucket).store(step + 1);
    (*DoorbellButton::Open(getpid(), doorbell_->write_fd()))->Ring();
  }

  const std::unique_ptr<WorkerArena> arena_ = *WorkerArena::Create(layout_);
  std::vector<HostWorker> workers_;
};

TEST_F(ArenaTest, ServesWorkersOfItsHostWhereTheirValuesLie) {
  StartWithArena();
  ASSERT_TRUE(arena_->answers().PrepareToSleep(1));
  for (int64_t i = 48; i < 80; ++i) arena_->gradients()[i] = 3.0f;
  PushInArena(0, 0);
  Worker zero(context_, endpoint_);
  Push(zero, 0, 0, 0, 1.0f);
  EXPECT_THAT(FloatsOf(zero.Receive()), Each(0.0f));
  const int answered[] = {arena_->doorbell().fd()};
  ASSERT_TRUE(Wait(std::vector<Socket*>(), answered, Soon()).ok());
  EXPECT_EQ(arena_->shard(0).answers.load(), 1);
  EXPECT_EQ(arena_->shard(0).next_step.load(), 1);
  for (int64_t i = 48; i < 80; ++i) EXPECT_EQ(arena_->parameters()[i], 0.0f);
}

TEST_F(ArenaTest, CountsAWorkerThatPushesOutOfTurnAndHearsItNoMore) {
  const CapturedLog log;
  StartWithArena();
  PushInArena(0, 1000);
  Worker zero(context_, endpoint_);
  for (int i = 0; i < 2; ++i) Pull(zero, 0);
  PushInArena(0, 0);
  Push(zero, 0, 0, 0, 1.0f);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(FloatsOf(Pull(zero, 0)), Each(1.0f));
  Stop();
  EXPECT_TRUE(result_.ok()) << result_;
  EXPECT_EQ(malformed_, 1);
  EXPECT_EQ(log.Count("worker 1 (host b, pid 4711)"), 1);
  EXPECT_EQ(arena_->shard(0).answers.load(), 0);
}

}  // namespace
}  // namespace psring
