// One server's part of a model: shards, each on a thread of its own, from the
// moment that workers open the model to its end.
#ifndef PSRING_PS_SERVED_MODEL_H_
#define PSRING_PS_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/member.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ps/host_workers.h"
#include "ps/serving_stats.h"
#include "ps/shard_thread.h"

namespace psring {

struct ServedModelOptions {
  std::string address;                   // numeric; where shards listen
  int shards = 1;                        // of this server
  SameHost same_host = SameHost::kAuto;  // share memory with workers?
  bool published = true;  // tells workers how to reach this one's doorbells
  absl::Duration step_timeout = absl::Seconds(60);
};

// One thread's own.
class ServedModel {
 public:
  // Listens and answers the workers' request; blocks until all servers have.
  // Errors: policies that contradict each other, a layout that cannot be made,
  // a server that does not answer within the step timeout.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Open(
      Context& context, Cancellation& cancellation, Member& member,
      const proto::Welcome& request, const ServedModelOptions& options);

  // Begins to serve. Once. `timeline` may be null.
  void Serve(Timeline* timeline);

  // The model, all parts filled in.
  const proto::Welcome& job() const { return job_; }

  // Stops and joins the shards' threads; what they have done.
  ServingStats Stop();

 private:
  ServedModel(Member& member, Layout layout, const ServedModelOptions& options)
      : member_(member), layout_(std::move(layout)), options_(options) {}
  absl::Status Listen(Context& context, Cancellation& cancellation);
  absl::StatusOr<proto::ModelPart> Part();

  Member& member_;
  const Layout layout_;
  const ServedModelOptions options_;
  proto::Welcome job_;
  // Where the workers of this host count what they push, a WakeCount a shard;
  // it proves that they are here. Null: shards have no doorbells.
  std::unique_ptr<ShmArena> pushes_;
  std::vector<HostWorker> host_workers_;
  std::vector<std::unique_ptr<ShardThread>> shards_;
};

}  // namespace psring

#endif  // PSRING_PS_SERVED_MODEL_H_
