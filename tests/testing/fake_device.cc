#include "tests/testing/fake_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/reduce.h"
#include "common/optim/optimizer_kernels.h"

namespace psring {
namespace {

DeviceInfo InfoOf(int index, int64_t memory_bytes) {
  DeviceInfo info;
  info.index = index;
  info.name = "fake GPU";
  info.bus_id = absl::StrCat("0000:0", index, ":00.0");
  info.memory_bytes = memory_bytes;
  info.compute_capability = "9.0";
  return info;
}

}  // namespace

FakeDevice::FakeDevice(int index, int64_t memory_bytes, FakeMemory memory)
    : info_(InfoOf(index, memory_bytes)), memory_(memory) {
  AddQueue();  // the compute stream's
}

FakeDevice::~FakeDevice() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (auto& queue : queues_) queue->thread.join();
}

FakeDevice::Queue* FakeDevice::AddQueue() {
  auto queue = std::make_unique<Queue>();
  Queue* const added = queue.get();
  MutexLock lock(&mutex_);
  queues_.push_back(std::move(queue));
  added->thread = std::thread([this, added] { Run(*added); });
  return added;
}

FakeDevice::Queue& FakeDevice::QueueOf(Stream stream) {
  if (stream.handle != nullptr) return *static_cast<Queue*>(stream.handle);
  MutexLock lock(&mutex_);
  return *queues_.front();
}

void FakeDevice::Run(Queue& queue) {
  while (true) {
    Work work;
    bool skip = false;
    {
      MutexLock lock(&mutex_);
      mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue.work.empty();
      });
      if (stopping_) return;
      work = std::move(queue.work.front());
      queue.work.pop_front();
      skip = !broken_.ok();
    }
    const absl::Status status = skip ? absl::OkStatus() : work();
    MutexLock lock(&mutex_);
    broken_.Update(status);
    ++queue.num_done;
  }
}

void FakeDevice::Enqueue(Stream stream, Work work) {
  Queue& queue = QueueOf(stream);
  MutexLock lock(&mutex_);
  queue.work.push_back(std::move(work));
  ++queue.num_queued;
}

void FakeDevice::Stall(Stream stream) {
  int64_t releases = 0;
  {
    MutexLock lock(&mutex_);
    releases = num_releases_;
  }
  Enqueue(stream, [this, releases] {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || num_releases_ > releases;
    });
    return absl::OkStatus();
  });
}

void FakeDevice::Release() {
  MutexLock lock(&mutex_);
  ++num_releases_;
  queries_hang_ = false;
}

void FakeDevice::HangQueries() {
  MutexLock lock(&mutex_);
  queries_hang_ = true;
}

void FakeDevice::AwaitHungQuery() {
  MutexLock lock(&mutex_);
  mutex_.Await(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_hung_ > 0; });
}

void FakeDevice::AwaitIdle() {
  MutexLock lock(&mutex_);
  mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) {
      return queue->num_done == queue->num_queued;
    });
  });
}

bool FakeDevice::AwaitCopies(int64_t n, Time deadline) {
  MutexLock lock(&mutex_);
  return mutex_.AwaitUntil(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_copies_ >= n; },
      deadline);
}

int64_t FakeDevice::num_copies() const {
  MutexLock lock(&mutex_);
  return num_copies_;
}

void FakeDevice::DropUpdates(int n) {
  MutexLock lock(&mutex_);
  drop_every_ = n;
}

int64_t FakeDevice::num_calls() const {
  MutexLock lock(&mutex_);
  return num_calls_;
}

int64_t FakeDevice::allocated_bytes() const {
  MutexLock lock(&mutex_);
  return memory_.allocated_bytes();
}

int FakeDevice::num_registered() const {
  MutexLock lock(&mutex_);
  return memory_.num_registered();
}

absl::StatusOr<void*> FakeDevice::Allocate(int64_t size_bytes) {
  absl::StatusOr<void*> data;
  {
    MutexLock lock(&mutex_);
    const int64_t free = info_.memory_bytes - memory_.allocated_bytes();
    if (size_bytes > free) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no room for ", size_bytes, " bytes on GPU ", info_.index, " (",
          info_.name, "): ", free, " of ", info_.memory_bytes, " are free"));
    }
    data = memory_.Allocate(size_bytes);
    if (!data.ok()) return data;
  }
  const Event zeroed = *CreateEvent();
  absl::Status status = QueueZero(*data, size_bytes, kComputeStream);
  status.Update(Record(zeroed, kComputeStream));
  MutexLock lock(&mutex_);
  const Mark& mark = *static_cast<Mark*>(zeroed.handle);
  mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || mark.queue->num_done >= mark.ticket;
  });
  status.Update(broken_);
  if (!status.ok()) return status;
  return data;
}

float* FakeDevice::Reach(const float* data) const {
  MutexLock lock(&mutex_);
  return reinterpret_cast<float*>(memory_.Reach(data));
}

void FakeDevice::Free(void* data) {
  AwaitIdle();
  MutexLock lock(&mutex_);
  memory_.Free(data);
}

absl::Status FakeDevice::RegisterHost(void* data, int64_t size_bytes) {
  MutexLock lock(&mutex_);
  return memory_.Register(data, size_bytes);
}

void FakeDevice::UnregisterHost(void* data) {
  MutexLock lock(&mutex_);
  std::vector<const void*> used;
  for (const void* place : being_copied_) {
    if (memory_.HasRegistered(place, 1)) used.push_back(place);
  }
  memory_.Unregister(data);
  for (const void* place : used) {
    if (memory_.HasRegistered(place, 1)) continue;
    broken_.Update(absl::InternalError(
        "memory was unlocked while a copy was going to use it"));
  }
}

absl::StatusOr<Stream> FakeDevice::CreateStream() { return Stream{AddQueue()}; }

absl::StatusOr<Event> FakeDevice::CreateEvent() {
  MutexLock lock(&mutex_);
  events_.push_back(std::make_unique<Mark>());
  return Event{events_.back().get()};
}

absl::StatusOr<Event> FakeDevice::CreateTimer() {
  const Event event = *CreateEvent();
  MutexLock lock(&mutex_);
  static_cast<Mark*>(event.handle)->is_timer = true;
  return event;
}

absl::Status FakeDevice::Record(Event event, Stream stream) {
  Queue& queue = QueueOf(stream);
  Mark& mark = *static_cast<Mark*>(event.handle);
  MutexLock lock(&mutex_);
  ++num_calls_;
  if (mark.is_timer) {
    queue.work.push_back([this, &mark] {
      MutexLock its_turn(&mutex_);
      mark.done_at = Now();
      return absl::OkStatus();
    });
    ++queue.num_queued;
  }
  mark.queue = &queue;
  mark.ticket = queue.num_queued;
  return broken_;
}

absl::StatusOr<absl::Duration> FakeDevice::Elapsed(Event begin, Event end) {
  const absl::StatusOr<bool> begun = IsDone(begin);
  if (!begun.ok()) return begun.status();
  const absl::StatusOr<bool> ended = IsDone(end);
  if (!ended.ok()) return ended.status();
  const Mark& from = *static_cast<Mark*>(begin.handle);
  const Mark& to = *static_cast<Mark*>(end.handle);
  MutexLock lock(&mutex_);
  if (!*begun || !*ended || !from.is_timer || !to.is_timer) {
    return absl::FailedPreconditionError("a time that is not known yet");
  }
  return to.done_at - from.done_at;
}

// What `event` is recorded behind later does not count.
absl::Status FakeDevice::WaitFor(Stream stream, Event event) {
  Mark mark;
  {
    MutexLock lock(&mutex_);
    ++num_calls_;
    mark = *static_cast<Mark*>(event.handle);
    if (!broken_.ok() || mark.queue == nullptr) return broken_;
  }
  Enqueue(stream, [this, mark] {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || mark.queue->num_done >= mark.ticket;
    });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeDevice::IsDone(Event event) {
  MutexLock lock(&mutex_);
  ++num_hung_;
  mutex_.Await(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queries_hang_; });
  --num_hung_;
  if (!broken_.ok()) return broken_;
  const Mark& mark = *static_cast<Mark*>(event.handle);
  return mark.queue == nullptr || mark.queue->num_done >= mark.ticket;
}

absl::Status FakeDevice::Check(const void* data, int64_t size_bytes,
                               bool host) const {
  std::vector<FakeDevice*> peers;
  {
    MutexLock lock(&mutex_);
    if (memory_.HasAllocated(data, size_bytes) ||
        (host && memory_.HasRegistered(data, size_bytes))) {
      return broken_;
    }
    if (host) peers = peers_;
  }
  for (const FakeDevice* peer : peers) {
    if (peer->Has(data, size_bytes)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(size_bytes, " bytes that the GPU cannot reach"));
}

bool FakeDevice::Has(const void* data, int64_t size_bytes) const {
  MutexLock lock(&mutex_);
  return memory_.HasAllocated(data, size_bytes);
}

char* FakeDevice::ReachAny(const void* data) const {
  std::vector<FakeDevice*> peers;
  {
    MutexLock lock(&mutex_);
    peers = peers_;
  }
  const auto* const floats = static_cast<const float*>(data);
  for (const FakeDevice* peer : peers) {
    if (peer->Has(data, 1)) {
      return reinterpret_cast<char*>(peer->Reach(floats));
    }
  }
  return reinterpret_cast<char*>(Reach(floats));
}

void FakeDevice::CanReachPeers(bool can) {
  MutexLock lock(&mutex_);
  can_reach_peers_ = can;
}

absl::StatusOr<bool> FakeDevice::ReachPeer(Device& peer) {
  MutexLock lock(&mutex_);
  peers_.push_back(dynamic_cast<FakeDevice*>(&peer));
  return can_reach_peers_;
}

void FakeDevice::CountCall() {
  MutexLock lock(&mutex_);
  ++num_calls_;
}

absl::Status FakeDevice::Copy(void* to, const void* from, int64_t size_bytes,
                              Stream stream) {
  CountCall();
  absl::Status status = Check(to, size_bytes, /*host=*/true);
  status.Update(Check(from, size_bytes, /*host=*/true));
  if (!status.ok()) return status;
  void* const target = ReachAny(to);
  const void* const source = ReachAny(from);
  {
    MutexLock lock(&mutex_);
    being_copied_.insert({to, from});
  }
  Enqueue(stream, [=, this] {
    std::memcpy(target, source, static_cast<size_t>(size_bytes));
    MutexLock lock(&mutex_);
    for (const void* place : {static_cast<const void*>(to), from}) {
      being_copied_.erase(being_copied_.find(place));
    }
    ++num_copies_;
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Zero(void* data, int64_t size_bytes, Stream stream) {
  CountCall();
  return QueueZero(data, size_bytes, stream);
}

absl::Status FakeDevice::QueueZero(void* data, int64_t size_bytes,
                                   Stream stream) {
  absl::Status status = Check(data, size_bytes, /*host=*/false);
  if (!status.ok()) return status;
  void* const target = Reach(static_cast<float*>(data));
  Enqueue(stream, [=] {
    std::memset(target, 0, static_cast<size_t>(size_bytes));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Scale(float* data, float scale, int64_t num_elements,
                               Stream stream) {
  CountCall();
  absl::Status status =
      Check(data, num_elements * sizeof(float), /*host=*/false);
  if (!status.ok()) return status;
  float* const target = Reach(data);
  Enqueue(stream, [=] {
    psring::Scale(target, scale, num_elements);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Update(const OptimizerFormula& formula,
                                const float* gradient, float scale,
                                float* parameters,
                                absl::Span<float* const> slots,
                                int64_t num_elements, Stream stream) {
  const int64_t bytes = num_elements * static_cast<int64_t>(sizeof(float));
  absl::Status status = Check(gradient, bytes, /*host=*/false);
  status.Update(Check(parameters, bytes, /*host=*/false));
  for (float* slot : slots) {
    status.Update(Check(slot, bytes, /*host=*/false));
  }
  if (!status.ok()) return status;
  {
    MutexLock lock(&mutex_);
    ++num_calls_;
    ++num_updates_;
    if (drop_every_ > 0 && num_updates_ % drop_every_ == 0) {
      return absl::OkStatus();
    }
  }
  std::vector<float*> state;
  for (float* slot : slots) state.push_back(Reach(slot));
  const float* const from = Reach(gradient);
  float* const to = Reach(parameters);
  Enqueue(stream, [=] {
    std::vector<float> scaled(from, from + num_elements);
    psring::Scale(scaled.data(), scale, num_elements);
    UpdateElements(formula, scaled.data(), to, state.data(), num_elements);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

}  // namespace psring
