#include "ring/ring_exchange.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host_cores.h"
#include "common/state/state_files.h"
#include "spdlog/spdlog.h"

namespace psring {

absl::StatusOr<std::unique_ptr<RingExchange>> RingExchange::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address, FlatModel& model, RingOptions options) {
  std::unique_ptr<RingExchange> exchange(
      new RingExchange(cancellation, model, options));
  std::promise<absl::StatusOr<std::string>> bound;
  auto endpoint = bound.get_future();
  exchange->thread_ = std::thread([self = exchange.get(), &context,
                                   &cancellation, address,
                                   b = std::move(bound)]() mutable {
    auto communicator = TcpCommunicator::Create(context, cancellation, address);
    if (!communicator.ok()) return b.set_value(communicator.status());
    self->tcp_ = *std::move(communicator);
    b.set_value(self->tcp_->endpoint());
    self->Run();
    self->tcp_.reset();
  });
  auto result = endpoint.get();
  if (!result.ok()) return result.status();
  exchange->endpoint_ = *result;
  return exchange;
}

RingExchange::~RingExchange() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void RingExchange::Run() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !tasks_.empty();
  };
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      busy_ = false;
      mutex_.Await(due);
      if (stopping_) return;
      busy_ = true;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      if (!failure_.ok()) continue;  // the ring is broken: nothing more is run
    }
    const absl::Status status = shm_ != nullptr ? task(*shm_) : task(*tcp_);
    if (tcp_ != nullptr) {
      bytes_sent_ = tcp_->bytes_sent();
      bytes_received_ = tcp_->bytes_received();
      gradient_bytes_ = tcp_->gradient_bytes_sent();
    }
    MutexLock lock(&mutex_);
    failure_.Update(status);
  }
}

void RingExchange::Post(Task task) {
  if (inline_) return deferred_.push_back(std::move(task));
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

// Every task has its own deadline, so this wait ends too.
absl::Status RingExchange::Drain() {
  if (inline_) {
    absl::Status status;
    for (Task& task : std::exchange(deferred_, {})) {
      if (status.ok()) status = task(*shm_);
    }
    return status;
  }
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return tasks_.empty() && !busy_;
  };
  MutexLock lock(&mutex_);
  mutex_.Await(idle);
  return failure_;
}

absl::Status RingExchange::RunTask(Task task) {
  Post(std::move(task));
  return Drain();
}

absl::Status RingExchange::Connect(const proto::Welcome& job,
                                   absl::Duration step_timeout, Track* track,
                                   Track* trainer_track) {
  job_ = job;
  track_ = track;
  trainer_track_ = trainer_track;
  step_ = FirstExchange(job.spec());
  step_timeout_ = step_timeout;
  plan_ = PlanOf(job.spec(), job.workers_size());
  const auto compression = ParseCompression(job.spec().compress());
  if (!compression.ok()) return compression.status();
  if (!compression->none()) codec_.emplace(*compression, model_.layout);
  auto optimizer =
      Optimizer::ForMean(plan_.optimizer, job.spec().local_steps());
  if (!optimizer.ok()) return optimizer.status();
  optimizer_ = std::make_unique<Optimizer>(*std::move(optimizer));
  if (model_.arena != nullptr &&
      model_.arena->num_slots() < optimizer_->num_slots()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an arena with room for ", model_.arena->num_slots(),
                     " optimizer slots; ", job.spec().optimizer().name(),
                     " has ", optimizer_->num_slots()));
  }
  return FindNodes(absl::Now() + step_timeout);
}

// Nobody relies on what only one side sees: ranks share memory when both have
// mapped the other.
absl::Status RingExchange::FindNodes(absl::Time deadline) {
  const int n = job_.workers_size();
  peers_.resize(n);
  // One row a rank, as long as makes it that rank's slice of an allgather.
  const int row = (n + kAlignElements - 1) / kAlignElements * kAlignElements;
  std::vector<float> rows(n * row, 0.0f);
  float* const mine = rows.data() + job_.rank() * row;
  if (model_.arena != nullptr) mine[job_.rank()] = 1.0f;
  for (int r = 0; r < n && model_.arena != nullptr; ++r) {
    const proto::Process& peer = job_.workers(r);
    if (r == job_.rank() || !peer.has_shared_memory()) continue;
    auto arena = WorkerArena::Map(model_.layout, model_.arena->num_slots(),
                                  peer.shared_memory());
    if (arena.ok()) {
      peers_[r] = *std::move(arena);
      mine[r] = 1.0f;
    } else {
      spdlog::debug("worker {} is not on this host: {}", r,
                    std::string(arena.status().message()));
    }
  }
  absl::Status status = RunTask([&](Communicator&) {
    tcp_->Connect(job_, track_);
    return tcp_->AllGather(absl::MakeSpan(rows), deadline);
  });
  if (!status.ok()) return status;
  std::vector<float> reach;
  for (int r = 0; r < n; ++r) {
    reach.insert(reach.end(), rows.begin() + r * row,
                 rows.begin() + r * row + n);
  }
  nodes_ = NodesOf(n, reach);
  UseSharedMemory();
  return absl::OkStatus();
}

void RingExchange::UseSharedMemory() {
  const int n = job_.workers_size();
  if (static_cast<int>(nodes_.size()) == n && n > 1) return;
  if (model_.arena == nullptr && n == 1) return;
  const Node node = nodes_[NodeOfRank(nodes_, n, job_.rank())];
  std::vector<int> ranks;
  std::vector<WorkerArena*> arenas;
  for (int i = 0; i < node.size; ++i) {
    const int rank = (node.first + i) % n;
    ranks.push_back(rank);
    arenas.push_back(rank == job_.rank() ? model_.arena.get()
                                         : peers_[rank].get());
  }
  std::unique_ptr<LocalGroup> group;
  if (model_.arena != nullptr) {
    group = std::make_unique<LocalGroup>(cancellation_, job_, std::move(ranks),
                                         std::move(arenas), track_);
  }
  if (nodes_.size() > 1) {
    spdlog::info("ring of {} nodes; {} ranks share this one's memory",
                 nodes_.size(), node.size);
    RunTask([&](Communicator&) {
      tcp_->UseNodes(nodes_, std::move(group));
      return absl::OkStatus();
    }).IgnoreError();  // cannot fail
    return;
  }
  spdlog::info("all {} ranks share memory", n);
  shm_ = std::make_unique<ShmCommunicator>(std::move(group), CommThreads(n));
  RunTask([this](Communicator&) {
    tcp_.reset();
    return absl::OkStatus();
  }).IgnoreError();  // cannot fail
  inline_ = n >= HostCores();
}

int RingExchange::CommThreads(int local_ranks) const {
  if (options_.comm_threads > 0) return options_.comm_threads;
  return ThreadsFor(local_ranks);
}

absl::Status RingExchange::Join(std::vector<FlatBuffer> slots,
                                ParametersArrived arrived,
                                absl::Time deadline) {
  for (int i = 0; i < optimizer_->num_slots(); ++i) {
    const bool given = i < static_cast<int>(slots.size());
    if (model_.arena != nullptr) {
      slots_.push_back(FlatBuffer::Borrow(model_.arena->slot(i),
                                          model_.layout.num_elements()));
      if (given) {
        std::copy_n(slots[i].data(), slots[i].size(), slots_[i].data());
      }
    } else if (given) {
      slots_.push_back(std::move(slots[i]));
    } else {
      auto slot = FlatBuffer::Create(model_.layout.num_elements());
      if (!slot.ok()) return slot.status();
      slots_.push_back(*std::move(slot));
    }
  }
  return RunTask([&](Communicator& c) {
    absl::Status status = c.Broadcast(model_.parameters.span(), 0, deadline);
    for (FlatBuffer& slot : slots_) {
      status.Update(c.Broadcast(slot.span(), 0, deadline));
    }
    return status;
  });
}

absl::Status RingExchange::Submit(int bucket) {
  submitted_.push_back(bucket);
  Post([this, bucket, step = step_](Communicator& c) {
    const absl::Status status = ReduceBucket(c, bucket, step);
    if (status.ok()) {
      MutexLock lock(&mutex_);
      ++num_reduced_;
      return status;
    }
    return absl::Status(status.code(),
                        absl::StrCat("step ", step, ", bucket ", bucket, ": ",
                                     std::string(status.message())));
  });
  return absl::OkStatus();
}

absl::Status RingExchange::ReduceBucket(Communicator& c, int bucket,
                                        int64_t step) {
  const Range range = model_.layout.bucket(bucket);
  const absl::Span<float> gradients(model_.gradients.data() + range.begin,
                                    static_cast<size_t>(range.size()));
  TimelineSpan span(
      track_, "reduce",
      {.step = step,
       .bytes = range.size() * static_cast<int64_t>(sizeof(float)),
       .bucket = bucket});
  const float scale = 1.0f / static_cast<float>(c.size());
  const absl::Time deadline = absl::Now() + step_timeout_;
  if (shm_ == nullptr && codec_.has_value()) {
    return tcp_->AllReduceEncoded(*codec_, range.begin, gradients, scale,
                                  deadline);
  }
  if (shm_ == nullptr) return c.AllReduce(gradients, scale, deadline);
  return shm_->ReduceAndUpdate(
      gradients, scale, *optimizer_, step + 1, plan_.RateAt(step),
      model_.parameters.data() + range.begin, SlotsAt(range.begin), deadline);
}

absl::Status RingExchange::Finish(absl::Time deadline) {
  if (shm_ == nullptr) {
    if (absl::Status s = UpdateBuckets(); !s.ok()) return s;
  }
  if (absl::Status s = Drain(); !s.ok()) return s;
  submitted_.clear();
  ++step_;
  return absl::OkStatus();
}

absl::Status RingExchange::UpdateBuckets() {
  const auto reduced = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_reduced_ > num_updated_ || !failure_.ok();
  };
  for (const int bucket : submitted_) {
    {
      MutexLock lock(&mutex_);
      mutex_.Await(reduced);
      if (!failure_.ok()) return failure_;
    }
    UpdateBucket(bucket);
    ++num_updated_;
  }
  return absl::OkStatus();
}

std::vector<float*> RingExchange::SlotsAt(int64_t begin) {
  std::vector<float*> slots;
  for (FlatBuffer& slot : slots_) slots.push_back(slot.data() + begin);
  return slots;
}

void RingExchange::UpdateBucket(int bucket) {
  TimelineSpan span(trainer_track_, "update",
                    {.step = step_, .bucket = bucket});
  const Range range = model_.layout.bucket(bucket);
  optimizer_->Update(step_ + 1, plan_.RateAt(step_),
                     model_.gradients.data() + range.begin,
                     model_.parameters.data() + range.begin,
                     SlotsAt(range.begin), range.size());
}

absl::Status RingExchange::Synchronise(absl::Time deadline) {
  return RunTask([=](Communicator& c) { return c.Barrier(deadline); });
}

absl::Status RingExchange::AllReduce(absl::Span<float> data, float scale,
                                     absl::Time deadline) {
  return RunTask(
      [=](Communicator& c) { return c.AllReduce(data, scale, deadline); });
}

absl::Status RingExchange::SaveState(const std::string& directory,
                                     absl::Time deadline) {
  CollectSlots();
  std::vector<const float*> slots;
  for (const FlatBuffer& slot : slots_) slots.push_back(slot.data());
  return WriteStateRange(directory, model_.layout, optimizer_->slot_names(),
                         {0, model_.layout.num_elements()},
                         model_.parameters.data(), slots);
}

// Between steps: nobody changes its state before all, this rank among them,
// have entered the next one.
void RingExchange::CollectSlots() {
  const int n = job_.workers_size();
  for (int b = 0; shm_ != nullptr && b < model_.layout.num_buckets(); ++b) {
    for (int r = 0; r < n; ++r) {
      const Range slice = NearEqualPart(model_.layout.bucket(b), n, r);
      for (size_t i = 0; r != job_.rank() && i < slots_.size(); ++i) {
        std::copy_n(peers_[r]->slot(static_cast<int>(i)) + slice.begin,
                    slice.size(), slots_[i].data() + slice.begin);
      }
    }
  }
}

}  // namespace psring
