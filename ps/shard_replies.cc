#include "ps/shard_replies.h"

#include <utility>

namespace psring {

using proto::WireHeader;

namespace {

// An edge is at most two blocks of a file (common/state/state_files.h).
constexpr size_t kPartBytes = 1 << 20;

}  // namespace

DataMessage ShardReplies::To(const std::string& peer, WireHeader::Kind kind,
                             WireHeader::DType dtype) const {
  DataMessage reply;
  reply.peer = peer;
  reply.header.set_kind(kind);
  reply.header.set_job_epoch(job_.job_epoch());
  reply.header.set_sender(static_cast<uint32_t>(job_.rank()));
  reply.header.set_dtype(dtype);
  return reply;
}

DataMessage ShardReplies::Params(const std::string& peer, const Piece& piece,
                                 int64_t step, Frame values) const {
  DataMessage reply = To(peer, WireHeader::PARAMS, WireHeader::FLOAT32);
  reply.header.set_step(step);
  reply.header.set_bucket(static_cast<uint32_t>(piece.bucket));
  reply.header.set_offset(static_cast<uint64_t>(piece.range.begin));
  reply.header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  reply.payload = std::move(values);
  return reply;
}

void ShardReplies::Parameters(const std::string& peer, const Piece& piece,
                              int64_t step, int64_t next_step,
                              Frame parameters) {
  DataMessage reply = Params(peer, piece, step, std::move(parameters));
  reply.header.set_next_step(next_step);
  send_(std::move(reply));
}

void ShardReplies::State(const std::string& peer, const Piece& piece, int slot,
                         Frame state) {
  DataMessage reply = Params(peer, piece, /*step=*/-1, std::move(state));
  reply.header.set_slot(static_cast<uint32_t>(slot));
  send_(std::move(reply));
}

void ShardReplies::Done(const std::string& peer, uint64_t question,
                        const absl::Status& result) {
  Answer(peer, question, WireHeader::DONE, result.message());
}

void ShardReplies::Saved(const std::string& peer, uint64_t question,
                         const proto::SavedState& saved) {
  proto::SavedState part;
  size_t bytes = 0;
  const auto make_room = [&](size_t for_bytes) {
    if (bytes > 0 && bytes + for_bytes > kPartBytes) {
      Answer(peer, question, WireHeader::SAVED, part.SerializeAsString(),
             /*more=*/true);
      part.Clear();
      bytes = 0;
    }
    bytes += for_bytes;
  };
  for (const proto::SavedState::Run& run : saved.runs()) {
    make_room(run.ByteSizeLong());
    *part.add_runs() = run;
  }
  for (const proto::SavedState::Edge& edge : saved.edges()) {
    make_room(edge.ByteSizeLong());
    *part.add_edges() = edge;
  }
  Answer(peer, question, WireHeader::SAVED, part.SerializeAsString());
}

void ShardReplies::Answer(const std::string& peer, uint64_t question,
                          WireHeader::Kind kind, absl::string_view bytes,
                          bool more) {
  DataMessage reply = To(peer, kind, WireHeader::BYTES);
  reply.header.set_sequence(question);
  reply.header.set_num_elements(bytes.size());
  reply.header.set_more(more);
  reply.payload = Frame::Copy(bytes);
  send_(std::move(reply));
}

}  // namespace psring
