#include "ring/nccl/nccl_communicator.h"

#include <sched.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/model/layout.h"
#include "ring/nccl/nccl_peers.h"

namespace psring {
namespace {

// While NCCL prepares or the GPU works: short beside both.
constexpr absl::Duration kLookAgain = absl::Microseconds(50);
// NCCL takes about as long to launch a collective: asked for it in a row, it
// costs no sleep.
constexpr absl::Duration kLaunches = absl::Microseconds(200);
// For asking who waits in a late collective.
constexpr absl::Duration kAskTimeout = absl::Seconds(2);
constexpr size_t kTokenElements = 16;

absl::Status Nothing() { return absl::OkStatus(); }

bool IsError(NcclResult result) {
  return result != kNcclSuccess && result != kNcclInProgress;
}

// A scale of 1 leaves every bit as it is.
absl::Status ScaleSum(Device& device, float* data, float scale, int64_t n,
                      Stream stream) {
  if (scale == 1.0f || n == 0) return absl::OkStatus();
  return device.Scale(data, scale, n, stream);
}

// One launch for each rank's slice of `data`.
template <typename Launch>
NcclResult ForEachSlice(const NcclApi& api, absl::Span<float> data, int n,
                        const Launch& launch) {
  NcclResult result = api.group_start();
  if (IsError(result)) return result;
  for (int c = 0; c < n && !IsError(result); ++c) {
    const Range slice =
        NearEqualPart({0, static_cast<int64_t>(data.size())}, n, c);
    if (slice.empty()) continue;
    result =
        launch(data.data() + slice.begin, static_cast<size_t>(slice.size()), c);
  }
  const NcclResult end = api.group_end();
  return IsError(result) ? result : end;
}

}  // namespace

NcclCommunicator::NcclCommunicator(NcclApi api, Device& device,
                                   Cancellation& cancellation,
                                   const proto::Welcome& job,
                                   NcclOptions options)
    : device_(device),
      cancellation_(cancellation),
      job_(job),
      options_(std::move(options)),
      handle_(std::move(api)) {}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    NcclApi api, Device& device, Cancellation& cancellation,
    const proto::Welcome& job, NcclOptions options, Time deadline) {
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(
      std::move(api), device, cancellation, job, std::move(options)));
  if (absl::Status s = communicator->Connect(deadline); !s.ok()) return s;
  return communicator;
}

absl::Status NcclCommunicator::Connect(Time deadline) {
  const absl::StatusOr<Stream> stream = device_.CreateStream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  const absl::StatusOr<void*> token =
      device_.Allocate(kTokenElements * sizeof(float));
  if (!token.ok()) return token.status();
  token_ = static_cast<float*>(*token);
  const absl::StatusOr<NcclId> id = ExchangeId(deadline);
  if (!id.ok()) {
    return absl::Status(id.status().code(),
                        absl::StrCat("the start of NCCL: ",
                                     std::string(id.status().message())));
  }
  NcclWatchdogOptions watchdog = options_.watchdog;
  watchdog.who_is_late = [this](int64_t sequence, absl::Duration waited) {
    return WhoIsLate(sequence, waited);
  };
  watchdog_ =
      NcclWatchdog::Start(device_, handle_, cancellation_, std::move(watchdog));
  watchdog_->Begin(
      {"the start of NCCL", sequence_, std::nullopt, deadline - Now()});
  // On the GPU that is this thread's current one, which Device's calls set.
  if (absl::Status s = handle_.Init(size(), *id, rank()); !s.ok()) {
    return watchdog_->Abort(absl::InternalError(
        absl::StrCat("the start of NCCL: ", std::string(s.message()))));
  }
  if (absl::Status s = Settle(); !s.ok()) return s;
  watchdog_->Launched(std::nullopt);
  int version = 0;  // all ranks have the same: ExchangeId has seen to it
  if (rank() == 0 && handle_.api().version(&version) == kNcclSuccess) {
    LogInfo("NCCL $0 sums on the GPUs of $1 ranks", NcclVersionName(version),
            size());
  }
  return absl::OkStatus();
}

absl::StatusOr<NcclId> NcclCommunicator::ExchangeId(Time deadline) {
  const NcclApi& api = handle_.api();
  NcclPeer self;
  self.bus_id = device_.info().bus_id;
  NcclResult result = api.version(&self.version);
  if (result == kNcclSuccess && rank() == 0) result = api.unique_id(&self.id);
  if (result != kNcclSuccess) {
    return absl::InternalError(handle_.Describe(result));
  }
  const auto texts = Gather("id", EncodeNcclPeer(self), deadline);
  if (!texts.ok()) return texts.status();
  return AgreeOnNcclId(*texts, job_, options_.allow_shared_gpu);
}

absl::Status NcclCommunicator::Settle() {
  const Time soon = Now() + kLaunches;
  while (true) {
    const std::optional<NcclResult> state = handle_.TryState();
    if (absl::Status s = Look(); !s.ok()) return s;
    if (state == kNcclSuccess) return absl::OkStatus();
    if (Now() < soon) {
      sched_yield();
    } else {
      absl::SleepFor(kLookAgain);  // errors are the watchdog's, which ends this
    }
  }
}

absl::StatusOr<Event> NcclCommunicator::RecordReady() {
  absl::StatusOr<Event> ready = watchdog_->TakeEvent();
  if (!ready.ok()) return ready.status();
  if (absl::Status s = device_.Record(*ready, compute_); !s.ok()) {
    return s;
  }
  return ready;
}

absl::Status NcclCommunicator::Enqueue(std::string what, Event ready,
                                       absl::Duration timeout, Launch launch,
                                       Then then) {
  if (absl::Status s = Look(); !s.ok()) return s;
  watchdog_->Begin({what, ++sequence_, ready, timeout});
  const absl::Status status = LaunchNow(ready, launch, then);
  if (status.ok()) return status;
  return watchdog_->Abort(absl::Status(
      status.code(), absl::StrCat(what, ": ", std::string(status.message()))));
}

absl::Status NcclCommunicator::LaunchNow(Event ready, Launch launch,
                                         Then then) {
  const absl::StatusOr<Event> done = watchdog_->TakeEvent();
  if (!done.ok()) return done.status();
  if (absl::Status s = device_.WaitFor(stream_, ready); !s.ok()) return s;
  if (absl::Status s = handle_.Call(launch); !s.ok()) return s;
  if (absl::Status s = Settle(); !s.ok()) return s;
  if (absl::Status s = then(); !s.ok()) return s;
  if (absl::Status s = device_.Record(*done, stream_); !s.ok()) return s;
  watchdog_->Launched(*done);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Block(std::string what, Time deadline,
                                     Launch launch, Then then) {
  const absl::StatusOr<Event> ready = RecordReady();
  if (!ready.ok()) return ready.status();
  if (absl::Status s =
          Enqueue(std::move(what), *ready, deadline - Now(), launch, then);
      !s.ok()) {
    return s;
  }
  return Drain(Time::InfiniteFuture());  // the watchdog keeps the deadline
}

absl::Status NcclCommunicator::Drain(Time deadline) {
  const absl::StatusOr<Event> event = watchdog_->TakeEvent();
  if (!event.ok()) return event.status();
  if (absl::Status s = device_.Record(*event, stream_); !s.ok()) return s;
  while (true) {
    const absl::StatusOr<bool> done = device_.IsDone(*event);
    // An aborted collective is done too, with nothing of use.
    if (absl::Status s = Look(); !s.ok()) return s;
    if (!done.ok()) return done.status();
    if (*done) break;
    if (Now() >= deadline) {
      return watchdog_->Abort(
          absl::DeadlineExceededError("the GPU has not done its work in time"));
    }
    absl::SleepFor(kLookAgain);
  }
  watchdog_->GiveBack(*event);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::EnqueueAllReduce(absl::Span<float> data,
                                                std::string what, Event ready,
                                                absl::Duration timeout,
                                                Then then) {
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return api.all_reduce(data.data(), data.data(), data.size(), comm,
                          stream_.handle);
  };
  return Enqueue(std::move(what), ready, timeout, launch, then);
}

absl::Status NcclCommunicator::AllReduce(absl::Span<float> data, float scale,
                                         Time deadline) {
  if (data.empty()) return Look();
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return api.all_reduce(data.data(), data.data(), data.size(), comm,
                          stream_.handle);
  };
  return Block(absl::StrCat("allreduce of ", data.size(), " elements"),
               deadline, launch, [&] {
                 return ScaleSum(device_, data.data(), scale,
                                 static_cast<int64_t>(data.size()), stream_);
               });
}

absl::Status NcclCommunicator::AllGather(absl::Span<float> data,
                                         Time deadline) {
  if (data.empty()) return Look();
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return ForEachSlice(api, data, size(),
                        [&](float* slice, size_t count, int owner) {
                          return api.broadcast(slice, slice, count, owner, comm,
                                               stream_.handle);
                        });
  };
  return Block(absl::StrCat("allgather of ", data.size(), " elements"),
               deadline, launch, Nothing);
}

absl::Status NcclCommunicator::EnqueueBroadcast(absl::Span<float> data,
                                                int root, std::string what,
                                                Event ready,
                                                absl::Duration timeout) {
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return api.broadcast(data.data(), data.data(), data.size(), root, comm,
                         stream_.handle);
  };
  return Enqueue(std::move(what), ready, timeout, launch, Nothing);
}

absl::Status NcclCommunicator::Broadcast(absl::Span<float> data, int root,
                                         Time deadline) {
  if (data.empty()) return Look();
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return api.broadcast(data.data(), data.data(), data.size(), root, comm,
                         stream_.handle);
  };
  return Block(absl::StrCat("broadcast of ", data.size(),
                            " elements by worker ", job_.workers(root).rank()),
               deadline, launch, Nothing);
}

absl::Status NcclCommunicator::Barrier(Time deadline) {
  const auto launch = [&](const NcclApi& api, NcclComm comm) {
    return api.all_reduce(token_, token_, kTokenElements, comm, stream_.handle);
  };
  return Block("barrier", deadline, launch, Nothing);
}

absl::Status NcclCommunicator::RegisterBuffer(void* data, int64_t size_bytes,
                                              Time deadline) {
  void* buffer = nullptr;
  const absl::Status status =
      handle_.Call([&](const NcclApi& api, NcclComm comm) {
        return api.register_buffer(comm, data, static_cast<size_t>(size_bytes),
                                   &buffer);
      });
  const auto all = Gather(absl::StrCat("register/", ++num_gathers_),
                          status.ok() ? "" : "no", deadline);
  if (!all.ok()) return all.status();
  for (int r = 0; r < size(); ++r) {
    if ((*all)[r].empty()) continue;
    LogDebug("$0 bytes are not registered with NCCL: worker $1 cannot$2",
             size_bytes, job_.workers(r).rank(),
             r == rank() ? absl::StrCat(": ", status.message()) : "");
    if (!status.ok()) return absl::OkStatus();
    return handle_.Call([&](const NcclApi& api, NcclComm comm) {
      return api.deregister_buffer(comm, buffer);
    });
  }
  registered_.push_back(buffer);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> NcclCommunicator::Gather(
    const std::string& name, const std::string& payload, Time deadline) {
  auto all = options_.gather(absl::StrCat("nccl/", name), payload, deadline);
  if (all.ok() && all->size() != static_cast<size_t>(size())) {
    return absl::InternalError(absl::StrCat(
        "'", name, "' has ", all->size(), " answers of ", size(), " workers"));
  }
  return all;
}

// Whoever waits in the same collective hears of it and asks too, however much
// later its own wait has begun.
std::string NcclCommunicator::WhoIsLate(int64_t sequence,
                                        absl::Duration waited) {
  const auto all = Gather(absl::StrCat("late/", sequence),
                          absl::StrCat(absl::ToInt64Milliseconds(waited)),
                          Now() + kAskTimeout);
  if (!all.ok()) return std::string(all.status().message());
  int64_t shortest = std::numeric_limits<int64_t>::max(), longest = 0;
  int last = 0;
  for (int r = 0; r < size(); ++r) {
    int64_t ms = 0;
    if (!absl::SimpleAtoi((*all)[r], &ms)) continue;
    longest = std::max(longest, ms);
    if (ms < shortest) {
      shortest = ms;
      last = r;
    }
  }
  if (shortest < longest / 2) {
    return absl::StrCat(
        Describe(job_.workers(last)), " has come to it late, ",
        absl::FormatDuration(absl::Milliseconds(longest - shortest)),
        " after the first");
  }
  return "every worker waits in it; do all GPUs and networks work?";
}

NcclCommunicator::~NcclCommunicator() {
  if (watchdog_ != nullptr) {
    if (absl::Status s = Close(); !s.ok()) {
      watchdog_->Abort(s).IgnoreError();
    }
    watchdog_.reset();  // waits for an abort
  }
  if (token_ != nullptr) device_.Free(token_);
}

absl::Status NcclCommunicator::Close() {
  if (absl::Status s = Look(); !s.ok()) return s;
  if (absl::Status s = Drain(Now() + options_.end_timeout); !s.ok()) return s;
  for (void* buffer : registered_) {
    absl::Status s = handle_.Call([&](const NcclApi& api, NcclComm comm) {
      return api.deregister_buffer(comm, buffer);
    });
    if (!s.ok()) return s;
  }
  watchdog_->Begin(
      {"the end of NCCL", ++sequence_, std::nullopt, options_.end_timeout});
  absl::Status status = handle_.Call(
      [&](const NcclApi& api, NcclComm comm) { return api.finalize(comm); });
  if (status.ok()) status = Settle();
  if (!status.ok()) return status;
  watchdog_->Launched(std::nullopt);
  return handle_.Destroy();
}

}  // namespace psring
