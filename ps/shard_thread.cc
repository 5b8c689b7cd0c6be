#include "ps/shard_thread.h"

#include <optional>
#include <utility>

#include "common/floating_point.h"
#include "common/optim/compression.h"

namespace psring {

absl::StatusOr<std::unique_ptr<ShardThread>> ShardThread::Start(
    Context& context, const std::string& address, Cancellation& cancellation) {
  std::unique_ptr<ShardThread> thread(new ShardThread(cancellation));
  auto doorbell = Doorbell::Create();
  if (!doorbell.ok()) return doorbell.status();
  thread->doorbell_ = *std::move(doorbell);
  std::promise<absl::StatusOr<std::string>> bound;
  auto endpoint = bound.get_future();
  thread->thread_ = std::thread(
      [self = thread.get(), &context, address, b = std::move(bound)]() mutable {
        self->Run(context, address, std::move(b));
      });
  auto result = endpoint.get();
  if (!result.ok()) return result.status();
  thread->endpoint_ = *result;
  return thread;
}

ShardThread::~ShardThread() { Stop(); }

void ShardThread::Serve(Assignment assignment) {
  assigned_ = true;
  assignment_.set_value(std::make_unique<Assignment>(std::move(assignment)));
}

ServingStats ShardThread::Stop() {
  stop_.Cancel(absl::CancelledError("the server ends"));
  if (!assigned_) {
    assigned_ = true;
    assignment_.set_value(nullptr);
  }
  if (thread_.joinable()) thread_.join();
  return stats_;
}

void ShardThread::Run(Context& context, const std::string& address,
                      std::promise<absl::StatusOr<std::string>> bound) {
  UseStandardFloatingPoint();
  auto socket = Socket::Bind(context, address, 0, DataSocketOptions());
  if (!socket.ok()) return bound.set_value(socket.status());
  bound.set_value((*socket)->endpoint());
  const auto assignment = assignment_.get_future().get();
  if (assignment == nullptr) return;
  const absl::Status status = ServeOn(**socket, *assignment);
  if (!status.ok()) cancellation_.Cancel(status);
}

absl::Status ShardThread::ServeOn(Socket& socket,
                                  const Assignment& assignment) {
  const proto::Welcome& job = assignment.options.job;
  auto optimizer =
      Optimizer::ForJob(job.spec(), job.spec().optimizer(), assignment.layout);
  if (!optimizer.ok()) return optimizer.status();
  auto shard = Shard::Create(
      assignment.ranges, *std::move(optimizer),
      job.spec().delay_compensation() > 0 ? job.workers_size() : 0);
  if (!shard.ok()) return shard.status();
  ShardServerOptions options = assignment.options;
  const auto header = UpdateLogHeaderOf(job, options.shard);
  std::optional<Replay> replay;
  if (!job.spec().replay_dir().empty()) {
    const PieceTable pieces(assignment.layout, assignment.ranges);
    auto turns = ReadUpdateLog(job.spec().replay_dir(), header, pieces.size());
    if (!turns.ok()) return turns.status();
    options.steps.replay =
        &replay.emplace(*std::move(turns), job.workers_size());
  }
  const auto codec = CodecOf(job.spec(), assignment.layout);
  if (!codec.ok()) return codec.status();
  if (codec->has_value()) options.codec = &**codec;
  std::optional<UpdateLogWriter> record;
  if (!job.spec().record_dir().empty()) {
    auto writer = UpdateLogWriter::Create(job.spec().record_dir(), header);
    if (!writer.ok()) return writer.status();
    options.steps.record = &record.emplace(*std::move(writer));
  }
  ShardServer server(socket, *doorbell_, options, assignment.layout, *shard);
  absl::Status status = server.Run(stop_);
  if (status.ok() && record.has_value()) status = record->Finish();
  stats_ = server.stats();
  return status;
}

}  // namespace psring
