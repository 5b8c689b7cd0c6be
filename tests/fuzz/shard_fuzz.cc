// ps/shard_requests.h: anything from two workers, in any order, while a third
// trains. Its messages are never held against it, whatever the others say.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "common/net/frame.h"
#include "common/optim/compression.h"
#include "ps/shard_requests.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::WireHeader;

constexpr int kWorkers = 3;
constexpr int kPieces = 2;
constexpr uint64_t kEpoch = 99;
constexpr char kTrainer[] = "trainer";  // worker 0

// Two pieces of one shard, with gaps.
Layout LayoutOfTwo() {
  std::vector<proto::TensorShape> tensors(2);
  tensors[0].set_name("a");
  tensors[0].add_shape(40);
  tensors[1].set_name("b");
  tensors[1].add_shape(20);
  return *Layout::Create(tensors, 1);
}

proto::Welcome JobOf(Bytes& input) {
  constexpr const char* kOptimizers[] = {"sgd", "momentum", "adam"};
  constexpr const char* kCodecs[] = {"", "fp16", "onebit", "topk:0.25"};
  proto::Welcome job;
  job.set_job_epoch(kEpoch);
  for (int w = 0; w < kWorkers; ++w) {
    job.add_workers()->set_rank(w);
    job.mutable_workers(w)->set_role(proto::WORKER);
  }
  proto::JobSpec& spec = *job.mutable_spec();
  spec.set_sync(input.Flag() ? proto::BSP : proto::ASYNC);
  if (spec.sync() == proto::BSP) spec.set_backup_workers(input.Below(2));
  if (spec.sync() != proto::BSP && input.Flag()) {
    spec.set_sync(proto::SSP);
    spec.set_staleness(1);
    spec.set_delay_compensation(input.Below(2));
  }
  spec.mutable_optimizer()->set_name(kOptimizers[input.Below(3)]);
  spec.mutable_optimizer()->set_lr(0.5);
  if (spec.optimizer().name() == "momentum") {
    spec.mutable_optimizer()->set_momentum(0.9);
  } else if (spec.optimizer().name() == "adam") {
    spec.mutable_optimizer()->set_beta1(0.9);
    spec.mutable_optimizer()->set_beta2(0.999);
    spec.mutable_optimizer()->set_epsilon(1e-8);
  }
  spec.mutable_optimizer()->mutable_schedule()->set_kind("constant");
  spec.set_compress(kCodecs[input.Below(4)]);
  spec.set_first_step(input.Below(2) * 5);
  spec.set_rates_from_workers(input.Flag());
  return job;
}

// Worker 0 pushes first, the others after it, step by step.
std::vector<std::vector<UpdateTurn>> RecordedTurns() {
  std::vector<UpdateTurn> turns;
  for (int w = 0; w < kWorkers; ++w) turns.push_back({w, kPullTurn});
  for (int step = 0; step < 4; ++step) {
    for (int w = 0; w < kWorkers; ++w) turns.push_back({w, step});
  }
  return std::vector<std::vector<UpdateTurn>>(kPieces, turns);
}

class Served {
 public:
  explicit Served(Bytes& input)
      : job_(JobOf(input)),
        codec_(*CodecOf(job_.spec(), layout_)),
        shard_(*Shard::Create(
            {{0, layout_.num_elements()}},
            *Optimizer::ForJob(job_.spec(), job_.spec().optimizer(), layout_),
            job_.spec().delay_compensation() > 0 ? kWorkers : 0)) {
    Require(pieces_.size() == kPieces, "the layout has its pieces");
    ShardStepsOptions options;
    options.workers_left = [this] { return left_; };
    if (input.Below(4) == 0) {
      options.replay = &replay_.emplace(RecordedTurns(), kWorkers);
    }
    requests_.emplace(
        ShardStepsParts{job_, layout_, pieces_, shard_, host_, replies_},
        options, codec_.has_value() ? &*codec_ : nullptr, "here");
    steps_.resize(kPieces, job_.spec().first_step());
    const bool state =
        job_.spec().first_step() > 0 || job_.spec().rates_from_workers();
    unsent_ = (1 + (state ? shard_.num_slots() : 0)) * kPieces;
  }

  bool failed() const { return !requests_->steps().failure().ok(); }

  // Worker 0 says what comes next, of the piece that is asked for.
  void Train(int piece) {
    if (unsent_ > 0) {
      --unsent_;
      WireHeader init = HeaderOf(WireHeader::INIT, unsent_ % kPieces, 0);
      init.set_slot(static_cast<uint32_t>(unsent_ / kPieces));
      return SayAsTrainer(init);
    }
    // One push a piece is under way; a pull may always come.
    if (waits_.contains(piece)) {
      if (!replay_.has_value()) {
        SayAsTrainer(HeaderOf(WireHeader::PULL, piece, 0));
      }
      return;
    }
    WireHeader push = HeaderOf(WireHeader::PUSH, piece, 0);
    push.set_step(steps_[static_cast<size_t>(piece)]);
    waits_.insert(piece);
    SayAsTrainer(push);
    if (job_.spec().sync() == proto::ASYNC && !replay_.has_value()) {
      Require(!waits_.contains(piece), "nobody is waited for");
    }
  }

  // Another worker, which is not worker 0: its key says so.
  void Say(const std::string& peer, const std::string& header,
           std::string payload) {
    WireHeader parsed;
    if (parsed.ParseFromString(header) && parsed.sender() == 0) return;
    if (parsed.kind() == WireHeader::PUSH ||
        parsed.kind() == WireHeader::PULL) {
      asked_.insert({peer, parsed.offset(),
                     parsed.kind() == WireHeader::PULL ? -1 : parsed.step()});
      ++due_[peer];
      NotePush(parsed);
    }
    const int64_t malformed = requests_->malformed();
    const bool was_dropped = dropped_.contains(peer);
    Take({peer, header, std::move(payload)});
    if (requests_->malformed() == malformed) return;
    Require(!was_dropped, "who has been dropped is not heard");
    dropped_.insert(peer);
  }

  void Leave(int worker) {
    for (const int w : left_) {
      if (w == worker) return;
    }
    left_.push_back(worker);
    requests_->steps().ReleaseFromThoseWhoLeft();
  }

  // False: somebody is late.
  bool Look() {
    const absl::Status late = requests_->steps().CheckDeadlines(
        Now() + absl::Hours(1), requests_->last_message());
    if (late.ok()) return true;
    RequireReason(late);
    Require(absl::IsDeadlineExceeded(late) || job_.spec().backup_workers() > 0,
            "a worker is named");
    return false;
  }

  WireHeader HeaderOf(WireHeader::Kind kind, int piece, int sender) const {
    WireHeader header;
    header.set_kind(kind);
    header.set_job_epoch(kEpoch);
    header.set_sender(static_cast<uint32_t>(sender));
    header.set_bucket(static_cast<uint32_t>(pieces_[piece].bucket));
    header.set_offset(static_cast<uint64_t>(pieces_[piece].range.begin));
    header.set_dtype(WireHeader::FLOAT32);
    if (kind == WireHeader::PULL) return header;
    header.set_num_elements(static_cast<uint64_t>(pieces_[piece].range.size()));
    if (kind != WireHeader::PUSH) return header;
    if (codec_.has_value()) header.set_dtype(WireHeader::ENCODED);
    if (job_.spec().rates_from_workers()) header.add_rates(0.25);
    return header;
  }

  // All of them `value`; as the header says they travel.
  std::string PayloadOf(const WireHeader& header, float value) const {
    const auto first = static_cast<uint64_t>(pieces_[0].range.begin);
    const int piece = header.offset() == first ? 0 : 1;
    const Range range = pieces_[piece].range;
    if (header.kind() == WireHeader::PULL) return "";
    const std::vector<float> values(static_cast<size_t>(range.size()), value);
    if (header.dtype() != WireHeader::ENCODED) {
      return {reinterpret_cast<const char*>(values.data()),
              values.size() * sizeof(float)};
    }
    std::vector<float> quantised = values;
    std::vector<float> residual(values.size());
    codec_->Quantise(range, quantised.data(), residual.data());
    std::string bytes(
        static_cast<size_t>(codec_->EncodedBytes(range, quantised.data())),
        '\0');
    codec_->Encode(range, quantised.data(), bytes.data());
    return bytes;
  }

 private:
  void SayAsTrainer(const WireHeader& header) {
    ++due_[kTrainer];
    NotePush(header);
    asked_.insert({kTrainer, header.offset(),
                   header.kind() == WireHeader::PULL ? -1 : header.step()});
    const int64_t malformed = requests_->malformed();
    Take({kTrainer, header.SerializeAsString(), PayloadOf(header, 0.5f)});
    // A recording that others do not keep to ends the job.
    Require(requests_->malformed() == malformed,
            "who does right is not held to be wrong");
  }

  void NotePush(const WireHeader& header) {
    if (header.kind() != WireHeader::PUSH) return;
    pushed_[{header.offset(), header.step()}].insert(header.sender());
  }

  void Take(const std::vector<std::string>& parts) {
    Frames frames;
    for (const std::string& part : parts) frames.push_back(Frame::Copy(part));
    requests_->OnMessage(std::move(frames));
    Require(!failed() || replay_.has_value(),
            "nothing that a worker says ends the shard");
  }

  void OnReply(const DataMessage& reply) {
    const WireHeader& header = reply.header;
    Require(header.kind() == WireHeader::PARAMS, "parameters were asked for");
    Require(header.job_epoch() == kEpoch, "the answer is of this job");
    const auto piece = pieces_.Find(header, WireHeader::FLOAT32);
    Require(piece.ok() && reply.payload.size() ==
                              static_cast<size_t>(pieces_[*piece].range.size() *
                                                  sizeof(float)),
            "it has a piece");
    // Worker 0 sends the pieces of each slot from the last to the first.
    Require(unsent_ <= *piece, "a piece has none before its first");
    Require(asked_.contains({reply.peer, header.offset(), header.step()}),
            "who has asked is answered");
    Require(--due_[reply.peer] >= 0, "at most once a question");
    const proto::JobSpec& spec = job_.spec();
    if (header.step() < spec.first_step()) return;  // of a pull, or a repeat
    if (spec.sync() == proto::BSP && spec.backup_workers() == 0) {
      Require(pushed_[{header.offset(), header.step()}].size() == kWorkers,
              "everybody's gradient has come");
    }
    if (reply.peer != kTrainer) return;
    waits_.erase(*piece);
    Require(header.next_step() > header.step(), "and goes on");
    steps_[static_cast<size_t>(*piece)] = header.next_step();
  }

  const Layout layout_ = LayoutOfTwo();
  const PieceTable pieces_{layout_, {{0, layout_.num_elements()}}};
  const proto::Welcome job_;
  const std::optional<GradientCodec> codec_;
  Shard shard_;
  HostShard host_{{},
                  0,
                  pieces_.buckets(),
                  /*pushes=*/nullptr,
                  /*together=*/false};
  ShardReplies replies_{[this](const DataMessage& reply) { OnReply(reply); },
                        job_};
  std::optional<Replay> replay_;
  std::optional<ShardRequests> requests_;
  std::vector<int> left_;

  int unsent_ = 0;              // of worker 0's first state
  std::vector<int64_t> steps_;  // by piece: worker 0's next
  std::set<int> waits_;         // pieces that worker 0 has pushed
  // (peer, offset, step)
  std::set<std::tuple<std::string, uint64_t, int64_t>> asked_;
  // By offset and step: senders.
  std::map<std::pair<uint64_t, int64_t>, std::set<uint32_t>> pushed_;
  std::map<std::string, int> due_;  // answers at most, by peer
  std::set<std::string> dropped_;
};

// A message that fits, with a field or two that do not, or any bytes.
void SaySomething(Bytes& input, Served& served) {
  constexpr WireHeader::Kind kKinds[] = {WireHeader::PUSH, WireHeader::PULL,
                                         WireHeader::INIT, WireHeader::SAVE,
                                         WireHeader::PROBE_DIR};
  const std::string peer(1, static_cast<char>('p' + input.Below(4)));
  const int sort = input.Below(8);
  if (sort == 7) {
    const std::string header = input.Text();
    return served.Say(peer, header, input.Text());
  }
  WireHeader::Kind kind = sort == 1 ? WireHeader::PULL : WireHeader::PUSH;
  if (sort == 6) kind = kKinds[input.Below(5)];
  const int piece = input.Below(kPieces);
  WireHeader header = served.HeaderOf(kind, piece, 1 + input.Below(2));
  header.set_step(input.Byte());
  std::string payload = served.PayloadOf(header, 1.0f);
  switch (sort) {
    case 3:
      header.set_step(input.Integer());
      break;
    case 4:
      payload = input.Text();
      break;
    case 5:
      header.MergeFromString(input.Text());
      break;
    default:
      break;
  }
  if (header.rates_size() == 1 && input.Below(16) == 15) {
    header.set_rates(0, input.Double());
  }
  served.Say(peer, header.SerializeAsString(), std::move(payload));
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const int sync : {0, 1, 2}) {
    for (int codec = 0; codec < 4; ++codec) {
      for (const int replay : {0, 1}) {
        Input input;
        if (sync == 0) input.Byte(1).Byte(codec & 1);
        if (sync == 1) input.Byte(0).Byte(0);
        if (sync == 2) input.Byte(0).Byte(1).Byte(codec & 1);
        input.Byte(codec % 3).Byte(codec).Byte(codec / 2).Byte(codec / 2);
        input.Byte(replay);
        for (int i = 0; i < 6; ++i) input.Byte(0).Byte(i);
        for (int step = 0; step < 3; ++step) {
          for (int piece = 0; piece < kPieces; ++piece) {
            input.Byte(0).Byte(piece);
            for (const int worker : {0, 1}) {
              input.Byte(1).Byte(worker).Byte(step % 2).Byte(piece);
              input.Byte(worker).Byte(step).Byte(0);
            }
          }
        }
        input.Byte(2).Byte(0).Byte(3);
        seeds.push_back(input.bytes());
      }
    }
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::Served served(input);
  while (!input.empty() && !served.failed()) {
    switch (input.Below(4)) {
      case 0:
        served.Train(input.Below(fuzz::kPieces));
        break;
      case 1:
        fuzz::SaySomething(input, served);
        break;
      case 2:
        served.Leave(1 + input.Below(2));
        break;
      default:
        if (!served.Look()) return 0;
    }
  }
  return 0;
}
