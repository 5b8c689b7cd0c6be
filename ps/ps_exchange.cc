#include "ps/ps_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/counted.h"
#include "common/log.h"
#include "common/optim/job_plan.h"
#include "common/optim/sync_policy.h"
#include "common/state/directory_probe.h"

namespace psring {

using proto::WireHeader;

namespace {

// Buckets that come closer together than this wait for nothing but the window.
constexpr absl::Duration kPatience = absl::Milliseconds(2);

// How often a worker that awaits no message looks for some: connections want to
// be heard (socket.h).
constexpr absl::Duration kListenEvery = absl::Milliseconds(200);

}  // namespace

std::string MeetingName(const proto::Welcome& job, int64_t n) {
  return absl::StrCat("synchronise ", job.model_id(), " ", n);
}

absl::StatusOr<std::unique_ptr<PsExchange>> PsExchange::Create(
    Context& context, const Cancellation& cancellation, Member& member,
    const proto::Welcome& job, FlatModel& model, Track* track) {
  std::unique_ptr<PsExchange> exchange(
      new PsExchange(cancellation, member, job, model, track));
  exchange->step_ = FirstExchange(job.spec());
  auto codec = CodecOf(job.spec(), model.layout);
  if (!codec.ok()) return codec.status();
  if (codec->has_value()) exchange->codec_.emplace(**std::move(codec));
  for (const ShardPlace& place : MapShards(model.layout, job)) {
    auto socket = Socket::Connect(
        context, place.endpoint,
        DataSocketOptions(job.servers(place.server).public_key()));
    if (!socket.ok()) return socket.status();
    exchange->AddShard(place, *std::move(socket));
  }
  return exchange;
}

void PsExchange::AddShard(const ShardPlace& place,
                          std::unique_ptr<Socket> socket) {
  sockets_.push_back(socket.get());
  ShardPeer& shard = shards_.emplace_back(
      ShardPeer::Worker{job_, model_, codec_.has_value() ? &*codec_ : nullptr,
                        track_},
      place, std::move(socket));
  for (int bucket : shard.buckets()) shards_of_[bucket].push_back(&shard);
}

absl::Status PsExchange::Join(std::vector<FlatBuffer> slots,
                              ParametersArrived arrived, Time deadline) {
  arrived_ = std::move(arrived);
  MovingDeadline moving = deadline;
  if (job_.rank() == 0) {
    if (absl::Status s = HandIn(slots, moving); !s.ok()) return s;
    moving.PutOff();
  }
  if (absl::Status s = PullAll("the first parameters", moving); !s.ok()) {
    return s;
  }
  FindHostShards();
  return absl::OkStatus();
}

absl::Status PsExchange::HandIn(const std::vector<FlatBuffer>& slots,
                                MovingDeadline deadline) {
  std::vector<const FlatBuffer*> state = {&model_.parameters};
  for (const FlatBuffer& slot : slots) state.push_back(&slot);
  while (true) {
    const ShardPeer* slowest = nullptr;
    bool sent = false;
    for (ShardPeer& shard : shards_) {
      // Also from one that needs no more: Wait returns while there is any.
      if (absl::Status s = shard.Receive(); !s.ok()) return s;
      const int left = shard.first_values_left();
      if (left == 0) continue;
      if (absl::Status s = shard.SendInit(state); !s.ok()) return s;
      sent |= shard.first_values_left() < left;
      if (shard.first_values_left() > 0) slowest = &shard;
    }
    if (slowest == nullptr) return absl::OkStatus();
    if (sent) deadline.PutOff();
    if (deadline.has_passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(job_.servers(slowest->place().server)),
                       " has not taken the first parameters in time (",
                       slowest->first_values_left(), " pieces are left)"));
    }
    const absl::Status status = Wait(sockets_, cancellation_, deadline.at());
    if (!status.ok()) return status;
  }
}

// A shard that has answered has attached before, where it could. Both sides
// have to reach each other.
void PsExchange::FindHostShards() {
  const int n = static_cast<int>(shards_.size());
  int num_shared = 0;
  for (int i = 0; i < n && model_.arena != nullptr;) {
    const int server = shards_[i].place().server;
    const int first = i;
    while (i < n && shards_[i].place().server == server) ++i;
    num_shared +=
        ShareWith(server, first, std::min(i, WorkerArena::kMaxShards));
  }
  by_message_ = num_shared < n;
  LogInfo("$0 of $1 shards share this host's memory", num_shared, n);
}

int PsExchange::ShareWith(int server, int first, int end) {
  const proto::SharedMemory& address = job_.servers(server).shared_memory();
  const int known = address.doorbell_fds_size();
  constexpr int64_t kBytes = sizeof(WakeCount);
  if (known == 0 || address.size_bytes() < known * kBytes) return 0;
  auto memory = ShmArena::Map(address);
  if (!memory.ok()) return 0;
  auto* pushes = reinterpret_cast<WakeCount*>((*memory)->data());
  int num_shared = 0;
  for (int i = first; i < std::min(end, first + known); ++i) {
    ShardSignals& signals = model_.arena->shard(i);
    if (signals.attached.load(std::memory_order_acquire) == 0) continue;
    auto button =
        DoorbellButton::Open(address.pid(), address.doorbell_fds(i - first));
    if (!button.ok()) continue;
    shards_[i].UseArena(signals, pushes[i - first], *std::move(button));
    ++num_shared;
  }
  server_memory_.push_back(*std::move(memory));
  return num_shared;
}

absl::Status PsExchange::PullAll(const std::string& what,
                                 MovingDeadline deadline) {
  for (ShardPeer& shard : shards_) {
    shard.Pull(0, model_.parameters.data());
  }
  return Await(-1, what, deadline);
}

// Nobody is in a step between the two gathers, so all pull the same.
absl::Status PsExchange::Synchronise(Before next, Time deadline) {
  const std::string name = MeetingName(job_, meetings_++);
  if (auto all = member_.Gather(name, "", deadline); !all.ok()) {
    return all.status();
  }
  if (TakesEveryGradient(job_.spec())) return absl::OkStatus();
  if (absl::Status s = PullAll("all parameters", deadline); !s.ok()) return s;
  return member_.Gather(name + " end", "", deadline).status();
}

absl::Status PsExchange::Submit(int bucket) {
  if (model_.arena != nullptr) {
    std::copy(model_.rates.begin(), model_.rates.end(), model_.arena->rates());
    model_.arena->pushed(bucket).store(step_ + 1, std::memory_order_release);
  }
  if (by_message_) {
    if (absl::Status s = SendEarlierPushes(); !s.ok()) return s;
  }
  for (ShardPeer* shard : shards_of_[bucket]) {
    shard->Push(bucket, step_);
    answers_of_bucket_[bucket] += shard->pieces_in_arena(bucket);
    if (absl::Status s = shard->SendReady(kWindowPieces); !s.ok()) return s;
  }
  if (arrived_ != nullptr) {
    untold_buckets_.push_back(bucket);
    TellArrived();
  }
  return absl::OkStatus();
}

absl::Status PsExchange::SendEarlierPushes() {
  const Time now = Now();
  const bool computing = now - std::exchange(last_submit_, now) > kPatience;
  for (ShardPeer& shard : shards_) {
    if (!computing) break;
    if (!shard.awaits_message()) continue;
    if (absl::Status s = shard.Receive(); !s.ok()) return s;
    if (absl::Status s = shard.SendReady(kEarlyWindowPieces); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Finish(Time deadline) {
  const absl::Status status =
      Await(step_, absl::StrCat("step ", step_), deadline);
  if (!status.ok()) return status;
  ++step_;
  for (const ShardPeer& shard : shards_) {
    step_ = std::max(step_, shard.next_step());
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Await(int64_t step, const std::string& what,
                               MovingDeadline deadline) {
  TimelineSpan span(track_, "await", {.step = step, .peer_role = "ps"});
  int64_t earlier = std::numeric_limits<int64_t>::max();
  while (true) {
    if (model_.arena != nullptr) {
      answers_seen_ = model_.arena->answers().count();
    }
    int64_t due = 0;
    for (ShardPeer& shard : shards_) {
      const auto shard_due = TakeFrom(shard);
      if (!shard_due.ok()) return shard_due.status();
      due += *shard_due;
      // The last one to be named is the one that was waited for longest.
      if (*shard_due > 0) span.args().peer = shard.place().server;
    }
    TellArrived();
    if (due == 0) return absl::OkStatus();
    if (std::exchange(earlier, due) > due) deadline.PutOff();
    if (deadline.has_passed()) return Late(what);
    if (absl::Status s = Sleep(deadline.at()); !s.ok()) return s;
  }
}

bool PsExchange::HasArrived(int bucket) const {
  for (const ShardPeer* shard : shards_of_[bucket]) {
    if (shard->due_by_message(bucket) > 0) return false;
  }
  return model_.arena == nullptr ||
         model_.arena->answered(bucket).load(std::memory_order_acquire) >=
             answers_of_bucket_[bucket];
}

void PsExchange::TellArrived() {
  std::vector<int> left;
  for (const int bucket : untold_buckets_) {
    if (HasArrived(bucket)) {
      arrived_(bucket);
    } else {
      left.push_back(bucket);
    }
  }
  untold_buckets_ = std::move(left);
}

absl::StatusOr<int64_t> PsExchange::TakeFrom(ShardPeer& shard) {
  if (listens_ || shard.awaits_message()) {
    if (absl::Status s = shard.Receive(); !s.ok()) return s;
    if (absl::Status s = shard.SendReady(kWindowPieces); !s.ok()) return s;
  }
  const int64_t due = shard.due();
  if (due >= 0) return due;
  return absl::InternalError(
      absl::StrCat(Describe(job_.servers(shard.place().server)),
                   " has answered more than was pushed"));
}

absl::Status PsExchange::Sleep(Time deadline) {
  bool by_message = false;
  int64_t awaited = 0;
  for (const ShardPeer& shard : shards_) {
    by_message |= shard.awaits_message();
    awaited += shard.answers_awaited();
  }
  if (model_.arena == nullptr) return Wait(sockets_, cancellation_, deadline);
  // In the arena the last answer wakes it, or each where `arrived_` has to
  // know.
  if (arrived_ != nullptr || awaited == answers_seen_) {
    awaited = answers_seen_ + 1;
  }
  WakeCount& answers = model_.arena->answers();
  Doorbell& doorbell = model_.arena->doorbell();
  listens_ = by_message;
  if (!by_message && wait_.Reaches(answers, awaited)) return absl::OkStatus();
  if (!answers.PrepareToSleep(awaited)) return absl::OkStatus();
  const Time look = Now() + kListenEvery;
  absl::Status status;
  if (by_message) {
    const int fds[] = {cancellation_.fd(), doorbell.fd()};
    status = Wait(sockets_, fds, deadline);
  } else {
    doorbell.Wait(cancellation_.fd(), std::min(deadline, look));
  }
  answers.WakeUp();
  if (!by_message) wait_.OnWoken();
  doorbell.Clear();
  if (status.ok() && !by_message && Now() >= look) {
    listens_ = true;
    status = Wait(sockets_, absl::Span<const int>(), Now());
  }
  return status.ok() ? cancellation_.status() : status;
}

absl::Status PsExchange::Late(const std::string& what) const {
  std::map<int, int64_t> due;  // by server
  for (const ShardPeer& shard : shards_) {
    if (shard.due() > 0) due[shard.place().server] += shard.due();
  }
  std::vector<std::string> silent;
  for (const auto& [server, pieces] : due) {
    silent.push_back(
        absl::StrCat(Describe(job_.servers(server)), " (", pieces, " pieces)"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no answer in time for ", what, " from ", ShortList(silent),
      ". Heartbeats come from there: servers wait for another worker, are busy "
      "with one step for longer than --step-timeout, or the network loses "
      "large packets on the way (MTU, firewall)"));
}

// Awaits them all, whatever one says: answers must not come into the next step.
absl::Status PsExchange::AskAll(WireHeader::Kind kind, const std::string& text,
                                const std::string& what, Time deadline) {
  for (ShardPeer& shard : shards_) {
    if (absl::Status s = shard.Ask(kind, text); !s.ok()) return s;
  }
  if (absl::Status s = Await(-1, what, deadline); !s.ok()) return s;
  absl::Status refusal;
  for (const ShardPeer& shard : shards_) {
    refusal.Update(shard.reply().status());
  }
  return refusal;
}

absl::StatusOr<proto::SavedState> PsExchange::SaveState(
    const std::string& directory, Time deadline) {
  const std::string what = absl::StrCat("a checkpoint in ", directory);
  if (absl::Status s = AskAll(WireHeader::SAVE, directory, what, deadline);
      !s.ok()) {
    return s;
  }
  proto::SavedState saved;
  for (const ShardPeer& shard : shards_) saved.MergeFrom(*shard.reply());
  return saved;
}

absl::Status PsExchange::FetchSlots(absl::Span<float* const> slots,
                                    Time deadline) {
  MovingDeadline moving = deadline;
  for (size_t i = 0; i < slots.size(); ++i) {
    for (ShardPeer& shard : shards_) {
      shard.Pull(static_cast<int>(i) + 1, slots[i]);
    }
    const absl::Status status = Await(-1, "the optimizer's state", moving);
    if (!status.ok()) return status;
    moving.PutOff();
  }
  return absl::OkStatus();
}

absl::Status PsExchange::CheckSaveDirectory(const std::string& directory,
                                            Time deadline) {
  const auto file = MakeProbe(directory);
  if (!file.ok()) return file.status();
  absl::Status status = AskAll(
      WireHeader::PROBE_DIR, *file,
      absl::StrCat("a test whether it can write to ", directory), deadline);
  unlink(file->c_str());
  return status;
}

Traffic PsExchange::traffic() const {
  Traffic traffic;
  for (const ShardPeer& shard : shards_) {
    traffic.sent += shard.socket().bytes_sent();
    traffic.received += shard.socket().bytes_received();
    traffic.gradients_sent += shard.gradient_bytes();
  }
  return traffic;
}

}  // namespace psring
