#include "tests/testing/fake_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/reduce.h"

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

bool Contains(const void* base, int64_t size, const void* data, int64_t bytes) {
  const char* begin = static_cast<const char*>(base);
  const char* from = static_cast<const char*>(data);
  return from >= begin && from + bytes <= begin + size;
}

int64_t BytesOf(const FlatBuffer& buffer) {
  return buffer.size() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

FakeDevice::FakeDevice(int index, int64_t memory_bytes)
    : info_(InfoOf(index, memory_bytes)) {
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
      mutex_.Await([&] { return stopping_ || !queue.work.empty(); });
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
    mutex_.Await([&] { return stopping_ || num_releases_ > releases; });
    return absl::OkStatus();
  });
}

void FakeDevice::Release() {
  MutexLock lock(&mutex_);
  ++num_releases_;
}

int64_t FakeDevice::allocated_bytes() const {
  MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [data, buffer] : allocated_) bytes += BytesOf(buffer);
  return bytes;
}

int FakeDevice::num_registered() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(registered_.size());
}

absl::StatusOr<void*> FakeDevice::Allocate(int64_t size_bytes) {
  const int64_t free = info_.memory_bytes - allocated_bytes();
  if (size_bytes > free) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for ", size_bytes, " bytes on GPU ", info_.index, " (",
        info_.name, "): ", free, " of ", info_.memory_bytes, " are free"));
  }
  const int64_t unit = sizeof(float);
  auto buffer = FlatBuffer::Create((size_bytes + unit - 1) / unit);
  if (!buffer.ok()) return buffer.status();
  void* const data = buffer->data();
  MutexLock lock(&mutex_);
  allocated_.emplace(data, *std::move(buffer));
  return data;
}

void FakeDevice::Free(void* data) {
  MutexLock lock(&mutex_);
  mutex_.Await([&] {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) {
      return queue->num_done == queue->num_queued;
    });
  });
  allocated_.erase(data);
}

absl::Status FakeDevice::RegisterHost(void* data, int64_t size_bytes) {
  MutexLock lock(&mutex_);
  if (!registered_.emplace(data, size_bytes).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("these ", size_bytes, " bytes are page-locked already"));
  }
  return absl::OkStatus();
}

void FakeDevice::UnregisterHost(void* data) {
  MutexLock lock(&mutex_);
  registered_.erase(data);
}

absl::StatusOr<Stream> FakeDevice::CreateStream() { return Stream{AddQueue()}; }

absl::StatusOr<Event> FakeDevice::CreateEvent() {
  MutexLock lock(&mutex_);
  events_.push_back(std::make_unique<Mark>());
  return Event{events_.back().get()};
}

absl::Status FakeDevice::Record(Event event, Stream stream) {
  Queue& queue = QueueOf(stream);
  MutexLock lock(&mutex_);
  *static_cast<Mark*>(event.handle) = {&queue, queue.num_queued};
  return broken_;
}

// What `event` is recorded behind later does not count.
absl::Status FakeDevice::WaitFor(Stream stream, Event event) {
  Mark mark;
  {
    MutexLock lock(&mutex_);
    mark = *static_cast<Mark*>(event.handle);
    if (!broken_.ok() || mark.queue == nullptr) return broken_;
  }
  Enqueue(stream, [this, mark] {
    MutexLock lock(&mutex_);
    mutex_.Await(
        [&] { return stopping_ || mark.queue->num_done >= mark.ticket; });
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeDevice::IsDone(Event event) {
  MutexLock lock(&mutex_);
  if (!broken_.ok()) return broken_;
  const Mark& mark = *static_cast<Mark*>(event.handle);
  return mark.queue == nullptr || mark.queue->num_done >= mark.ticket;
}

absl::Status FakeDevice::Check(const void* data, int64_t size_bytes,
                               bool host) const {
  MutexLock lock(&mutex_);
  for (const auto& [base, buffer] : allocated_) {
    if (Contains(base, BytesOf(buffer), data, size_bytes)) return broken_;
  }
  for (const auto& [base, size] : registered_) {
    if (host && Contains(base, size, data, size_bytes)) return broken_;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(size_bytes, " bytes that the GPU cannot reach"));
}

absl::Status FakeDevice::Copy(void* to, const void* from, int64_t size_bytes,
                              Stream stream) {
  absl::Status status = Check(to, size_bytes, /*host=*/true);
  status.Update(Check(from, size_bytes, /*host=*/true));
  if (!status.ok()) return status;
  Enqueue(stream, [=] {
    std::memcpy(to, from, static_cast<size_t>(size_bytes));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Zero(void* data, int64_t size_bytes, Stream stream) {
  absl::Status status = Check(data, size_bytes, /*host=*/false);
  if (!status.ok()) return status;
  Enqueue(stream, [=] {
    std::memset(data, 0, static_cast<size_t>(size_bytes));
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Scale(float* data, float scale, int64_t num_elements,
                               Stream stream) {
  absl::Status status =
      Check(data, num_elements * sizeof(float), /*host=*/false);
  if (!status.ok()) return status;
  Enqueue(stream, [=] {
    psring::Scale(data, scale, num_elements);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status FakeDevice::Update(const Optimizer& optimizer, int64_t update,
                                double lr, const float* gradient, float scale,
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
  const std::vector<float*> state(slots.begin(), slots.end());
  Enqueue(stream, [=, optimizer = optimizer] {
    std::vector<float> scaled(gradient, gradient + num_elements);
    psring::Scale(scaled.data(), scale, num_elements);
    optimizer.Update(update, lr, scaled.data(), parameters, state,
                     num_elements);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

}  // namespace psring
