#include "ring/connect_ring.h"

#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/counted.h"
#include "common/exchange/serial_runner.h"
#include "common/host_cores.h"
#include "common/log.h"
#include "common/optim/compression.h"
#include "ring/host_ranks.h"
#include "ring/message_ring.h"
#include "ring/rank_model.h"
#include "ring/shared_ring.h"

namespace psring {

namespace {

using Where = SerialRunner::Where;

absl::StatusOr<std::unique_ptr<HostRanks>> FindHosts(
    RingListener& listener, const proto::Welcome& job, FlatModel& flat,
    absl::Duration step_timeout, Track* track) {
  const auto all_gather = [&](absl::Span<float> data) {
    return listener.runner().Run([&] {
      TcpCommunicator& c = listener.communicator();
      c.Connect(job, track);
      return c.AllGather(data, Now() + step_timeout);
    });
  };
  return HostRanks::Find(job, flat, listener.cancellation(), all_gather);
}

absl::Status UseNodes(RingListener& listener, const HostRanks& hosts,
                      Track* track) {
  const int here = hosts.node().size;
  LogInfo("ring of $0; $1 $2 this one's memory",
          Counted(hosts.nodes().size(), "node"), Counted(here, "rank"),
          here == 1 ? "has" : "share");
  return listener.runner().Run([&] {
    listener.communicator().UseNodes(hosts.nodes(), hosts.MakeGroup(track));
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingExchange>> ConnectRing(
    std::unique_ptr<RingListener> listener, const proto::Welcome& job,
    FlatModel& flat, const RingOptions& options, absl::Duration step_timeout,
    Track* track) {
  auto model = RankModel::Create(job, flat);
  if (!model.ok()) return model.status();
  auto codec = CodecOf(job.spec(), flat.layout);
  if (!codec.ok()) return codec.status();
  auto hosts = FindHosts(*listener, job, flat, step_timeout, track);
  if (!hosts.ok()) return hosts.status();
  const int n = (*hosts)->size();
  const int num_nodes = static_cast<int>((*hosts)->nodes().size());
  if (num_nodes == 1 && flat.arena != nullptr) {
    if (n > 1) LogInfo("all $0 ranks share memory", n);
    const SharedRing::Options shared{
        .where = n < HostCores() ? Where::kOwnThread : Where::kCallersThread,
        .threads =
            options.comm_threads > 0 ? options.comm_threads : ThreadsFor(n),
        .step_timeout = step_timeout,
        .track = track,
        .traffic = listener->communicator().traffic()};
    listener.reset();  // nobody will send to it
    return std::make_unique<SharedRing>(*std::move(hosts), *std::move(model),
                                        shared);
  }
  if (num_nodes < n) {
    if (absl::Status s = UseNodes(*listener, **hosts, track); !s.ok()) return s;
  }
  return std::make_unique<MessageRing>(
      *std::move(hosts), *std::move(model), *std::move(codec),
      std::move(listener),
      MessageRing::Options{.step_timeout = step_timeout, .track = track});
}

}  // namespace psring
