#include "gpu/device_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model/flat_model.h"
#include "common/optim/optimizer.h"
#include "gpu/device_model.h"

namespace psring {
namespace {

constexpr float kScale = 0.25f;
constexpr double kRate = 0.05;
constexpr int kUpdates = 3;
constexpr int kCopies = 20;

// Page-locked for as long as it lives.
class LockedBuffer {
 public:
  static absl::StatusOr<LockedBuffer> Create(Device& device,
                                             int64_t num_elements) {
    auto buffer = FlatBuffer::Create(num_elements);
    if (!buffer.ok()) return buffer.status();
    absl::Status status = device.RegisterHost(buffer->data(), num_elements * 4);
    if (!status.ok()) return status;
    LockedBuffer locked;
    locked.device_ = &device;
    locked.buffer_ = *std::move(buffer);
    return locked;
  }

  LockedBuffer(LockedBuffer&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        buffer_(std::move(other.buffer_)) {}
  ~LockedBuffer() {
    if (device_ != nullptr) device_->UnregisterHost(buffer_.data());
  }

  FlatBuffer& operator*() { return buffer_; }
  FlatBuffer* operator->() { return &buffer_; }

 private:
  LockedBuffer() = default;

  Device* device_ = nullptr;
  FlatBuffer buffer_;
};

// A device with a stream, and waits with a deadline.
class Bench {
 public:
  Bench(Device& device, Time deadline, const Cancellation& cancellation)
      : device_(device), deadline_(deadline), cancellation_(cancellation) {}

  absl::Status Open() {
    for (int i = 0; i < 2; ++i) {
      auto stream = device_.CreateStream();
      if (!stream.ok()) return stream.status();
      auto event = device_.CreateEvent();
      if (!event.ok()) return event.status();
      auto timer = device_.CreateTimer();
      if (!timer.ok()) return timer.status();
      streams_[i] = *stream;
      events_[i] = *event;
      timers_[i] = *timer;
    }
    return absl::OkStatus();
  }

  Stream stream(int i = 0) const { return streams_[i]; }

  // Until both streams have done all that is in them.
  absl::Status Drain() {
    for (int i = 0; i < 2; ++i) {
      absl::Status status = device_.Record(events_[i], streams_[i]);
      if (status.ok()) {
        status = Await(device_, events_[i], deadline_, cancellation_);
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Move(void* to, const void* from, int64_t num_elements) {
    absl::Status status = device_.Copy(to, from, num_elements * 4, stream());
    return status.ok() ? Drain() : status;
  }

  // How long the streams take for what `queue` puts into them, by the device's
  // own clock: who asks whether they are done hears of it later, by up to as
  // much as a copy over NVLink takes. Blocks until they are.
  absl::StatusOr<double> SecondsOf(absl::FunctionRef<absl::Status()> queue) {
    absl::Status status = device_.Record(timers_[0], streams_[0]);
    status.Update(device_.WaitFor(streams_[1], timers_[0]));
    if (status.ok()) status = queue();
    status.Update(device_.Record(events_[1], streams_[1]));
    status.Update(device_.WaitFor(streams_[0], events_[1]));
    status.Update(device_.Record(timers_[1], streams_[0]));
    if (status.ok()) {
      status = Await(device_, timers_[1], deadline_, cancellation_);
    }
    if (!status.ok()) return status;
    const auto elapsed = device_.Elapsed(timers_[0], timers_[1]);
    if (!elapsed.ok()) return elapsed.status();
    return absl::ToDoubleSeconds(std::max(*elapsed, absl::Nanoseconds(1)));
  }

 private:
  Device& device_;
  const Time deadline_;
  const Cancellation& cancellation_;
  Stream streams_[2];
  Event events_[2];
  Event timers_[2];
};

proto::OptimizerSettings SettingsOf(const std::string& name) {
  proto::OptimizerSettings settings;
  settings.set_name(name);
  settings.set_lr(kRate);
  const bool momentum = name == "momentum" || name == "nesterov";
  settings.set_momentum(momentum ? 0.9 : 0.0);
  settings.set_weight_decay(0.01);
  settings.set_beta1(0.9);
  settings.set_beta2(0.999);
  settings.set_epsilon(1e-8);
  settings.mutable_schedule()->set_kind("constant");
  return settings;
}

bool Close(float a, float b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::nextafter(a, b) == b;
}

absl::Status CheckOptimizer(Device& device, Bench& bench,
                            const Optimizer& optimizer, int64_t n) {
  const std::string& name = optimizer.settings().name();
  std::vector<FlatBuffer> host;  // parameters, gradients, slots
  std::vector<DeviceBuffer> there;
  auto staging = LockedBuffer::Create(device, n);
  if (!staging.ok()) return staging.status();
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 2 + optimizer.num_slots(); ++i) {
    auto here = FlatBuffer::Create(n);
    if (!here.ok()) return here.status();
    auto buffer = DeviceBuffer::Create(device, name, n);
    if (!buffer.ok()) return buffer.status();
    host.push_back(*std::move(here));
    there.push_back(*std::move(buffer));
    if (i >= 2) continue;  // slots are zero at the start
    for (float& value : host[i].span()) value = normal(random);
    std::copy_n(host[i].data(), n, (*staging)->data());
    absl::Status status = bench.Move(there[i].data(), (*staging)->data(), n);
    if (!status.ok()) return status;
  }
  std::vector<float*> slots;
  std::vector<float*> slots_there;
  for (int i = 0; i < optimizer.num_slots(); ++i) {
    slots.push_back(host[2 + i].data());
    slots_there.push_back(there[2 + i].data());
  }
  std::vector<float> scaled(host[1].data(), host[1].data() + n);
  for (float& g : scaled) g *= kScale;
  for (int update = 1; update <= kUpdates; ++update) {
    optimizer.Update(update, kRate, scaled.data(), host[0].data(), slots, n);
    absl::Status status =
        device.Update(optimizer.FormulaOf(update, kRate), there[1].data(),
                      kScale, there[0].data(), slots_there, n, bench.stream());
    if (!status.ok()) return status;
  }
  absl::Status status = bench.Move((*staging)->data(), there[0].data(), n);
  if (!status.ok()) return status;
  for (int64_t i = 0; i < n; ++i) {
    const float found = (*staging)->data()[i];
    const float wanted = host[0].data()[i];
    if (Close(found, wanted)) continue;
    return absl::DataLossError(absl::StrCat("GPU ", device.info().index, ": ",
                                            name, " makes parameter ", i, " ",
                                            found, ", the host ", wanted));
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

absl::Status CheckOptimizers(Device& device, int64_t num_elements,
                             Time deadline, const Cancellation& cancellation) {
  Bench bench(device, deadline, cancellation);
  if (absl::Status s = bench.Open(); !s.ok()) return s;
  for (const std::string& name : OptimizerNames()) {
    const auto optimizer = Optimizer::Create(SettingsOf(name));
    if (!optimizer.ok()) return optimizer.status();
    absl::Status status =
        CheckOptimizer(device, bench, *optimizer, num_elements);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<CopyRates> MeasureCopies(Device& device, int64_t size_bytes,
                                        Time deadline,
                                        const Cancellation& cancellation) {
  Bench bench(device, deadline, cancellation);
  if (absl::Status s = bench.Open(); !s.ok()) return s;
  const int64_t n = size_bytes / 4;
  auto out = LockedBuffer::Create(device, n);
  if (!out.ok()) return out.status();
  auto back = LockedBuffer::Create(device, n);
  if (!back.ok()) return back.status();
  auto there = DeviceBuffer::Create(device, "what is copied", n);
  if (!there.ok()) return there.status();
  auto other = DeviceBuffer::Create(device, "what is copied back", n);
  if (!other.ok()) return other.status();
  std::vector<double> seconds[3];
  for (int i = 0; i < kCopies; ++i) {
    std::iota((*out)->data(), (*out)->data() + n, static_cast<float>(i));
    for (int kind = 0; kind < 3; ++kind) {
      const auto took = bench.SecondsOf([&] {
        absl::Status status;
        if (kind != 1) {
          status.Update(device.Copy(there->data(), (*out)->data(), n * 4,
                                    bench.stream(0)));
        }
        if (kind != 0) {
          const DeviceBuffer& from = kind == 1 ? *there : *other;
          status.Update(device.Copy((*back)->data(), from.data(), n * 4,
                                    bench.stream(1)));
        }
        return status;
      });
      if (!took.ok()) return took.status();
      seconds[kind].push_back(*took);
      if (kind == 1 &&
          !std::equal((*out)->data(), (*out)->data() + n, (*back)->data())) {
        return absl::DataLossError(
            absl::StrCat("GPU ", device.info().index, ": what comes back of ",
                         size_bytes, " bytes is not what was sent"));
      }
    }
  }
  const auto bytes = static_cast<double>(n * 4);
  return CopyRates{bytes / Median(seconds[0]), bytes / Median(seconds[1]),
                   2 * bytes / Median(seconds[2])};
}

absl::StatusOr<PeerCopy> MeasurePeerCopy(Device& from, Device& to,
                                         int64_t size_bytes, Time deadline,
                                         const Cancellation& cancellation) {
  const auto there = from.ReachPeer(to);
  if (!there.ok()) return there.status();
  const auto back = to.ReachPeer(from);
  if (!back.ok()) return back.status();
  Bench bench(from, deadline, cancellation);
  if (absl::Status s = bench.Open(); !s.ok()) return s;
  const int64_t n = size_bytes / 4;
  auto source = DeviceBuffer::Create(from, "what is copied", n);
  if (!source.ok()) return source.status();
  auto target = DeviceBuffer::Create(to, "the copy", n);
  if (!target.ok()) return target.status();
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) {
    const auto took = bench.SecondsOf([&] {
      return from.Copy(target->data(), source->data(), n * 4, bench.stream());
    });
    if (!took.ok()) return took.status();
    seconds.push_back(*took);
  }
  return PeerCopy{static_cast<double>(n * 4) / Median(seconds),
                  *there && *back};
}

}  // namespace psring
