// A worker of the job, whose key is good, that speaks as another one. Real
// sockets, every process a thread with a context of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/model/layout.h"
#include "common/net/frame.h"
#include "common/net/keys.h"
#include "common/net/socket.h"
#include "protos/wire.pb.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using proto::WireHeader;

constexpr char kCaught[] = "worker 1 (by its key) speaks as worker 0";
constexpr int kSteps = 3;

// What rank 1 does before the first step, while the others wait.
using Attack = std::function<void(LocalWorker&)>;

std::vector<std::vector<float>> Train(proto::Mode mode, const Attack& attack) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.num_workers = 3;
  options.same_host = SameHost::kOff;
  options.secret = Secret::Random();
  std::vector<std::vector<float>> finals(options.num_workers);
  const auto train = TrainBody(kSteps, &finals);
  const auto results = RunLocalJob(options, [&](LocalWorker& worker) {
    if (attack && worker.rank == 1) attack(worker);
    const auto all = worker.member->Gather("attacked", "", Soon());
    return all.ok() ? train(worker) : all.status();
  });
  for (const absl::Status& status : results)
    EXPECT_EQ(status, absl::OkStatus());
  return finals;
}

void SendAndAwaitCatch(Socket& socket, DataMessage message) {
  CapturedLog log;
  EXPECT_EQ(SendData(socket, std::move(message)), absl::OkStatus());
  const Time deadline = Soon();
  while (log.Count(kCaught) == 0 && Now() < deadline) {
    Wait({&socket}, std::vector<int>{}, Now() + absl::Milliseconds(10))
        .IgnoreError();
    EXPECT_EQ(socket.TryReceive().status(), absl::OkStatus());
  }
  EXPECT_EQ(log.Count(kCaught), 1);
}

// First parameters, which worker 0 alone may send: of whatever it sends, this
// is what the server takes at any time.
TEST(Impersonation, AServerDropsWhoSpeaksAsAnotherWorker) {
  const auto undisturbed = Train(proto::PARAMETER_SERVER, nullptr);
  const auto attacked = Train(proto::PARAMETER_SERVER, [](LocalWorker& worker) {
    const proto::Welcome& job = worker.client->job();
    auto socket =
        Socket::Connect(worker.job->context(), job.servers(0).endpoints(0),
                        DataSocketOptions(job.servers(0).public_key()));
    ASSERT_TRUE(socket.ok()) << socket.status();
    const Piece piece = PiecesOfShard(worker.model.layout,
                                      {{0, worker.model.layout.num_elements()}},
                                      kPieceElements)[0];
    DataMessage message;
    message.header.set_kind(WireHeader::INIT);
    message.header.set_job_epoch(job.job_epoch());
    message.header.set_sender(0);
    message.header.set_bucket(piece.bucket);
    message.header.set_offset(piece.range.begin);
    message.header.set_num_elements(piece.range.size());
    message.header.set_dtype(WireHeader::FLOAT32);
    message.payload = Frame::OfSize(piece.range.size() * sizeof(float));
    std::fill_n(static_cast<float*>(message.payload.data()), piece.range.size(),
                1e6f);
    SendAndAwaitCatch(**socket, std::move(message));
  });
  EXPECT_EQ(attacked, undisturbed);
}

}  // namespace
}  // namespace psring
