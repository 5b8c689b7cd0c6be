#include "ps/shard_replies.h"

#include <utility>

namespace psring {

using proto::WireHeader;

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

void ShardReplies::Parameters(const std::string& peer, const Piece& piece,
                              int64_t step, int64_t next_step,
                              Frame parameters) {
  DataMessage reply = To(peer, WireHeader::PARAMS, WireHeader::FLOAT32);
  reply.header.set_step(step);
  reply.header.set_next_step(next_step);
  reply.header.set_bucket(static_cast<uint32_t>(piece.bucket));
  reply.header.set_offset(static_cast<uint64_t>(piece.range.begin));
  reply.header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  reply.payload = std::move(parameters);
  send_(std::move(reply));
}

void ShardReplies::Done(const std::string& peer, uint64_t question,
                        const absl::Status& result) {
  Answer(peer, question, WireHeader::DONE, result.message());
}

void ShardReplies::Saved(const std::string& peer, uint64_t question,
                         const proto::SavedState& saved) {
  Answer(peer, question, WireHeader::SAVED, saved.SerializeAsString());
}

void ShardReplies::Answer(const std::string& peer, uint64_t question,
                          WireHeader::Kind kind, absl::string_view bytes) {
  DataMessage reply = To(peer, kind, WireHeader::BYTES);
  reply.header.set_sequence(question);
  reply.header.set_num_elements(bytes.size());
  reply.payload = Frame::Copy(bytes);
  send_(std::move(reply));
}

}  // namespace psring
