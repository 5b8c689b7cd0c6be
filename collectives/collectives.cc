#include "collectives/collectives.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/call.h"
#include "common/floating_point.h"

namespace psring {
namespace {

using proto::CollectiveCall;

absl::Status CheckSet(absl::Span<const int32_t> set, int rank, int size) {
  const bool sorted =
      std::is_sorted(set.begin(), set.end(), std::less_equal<int32_t>());
  const auto ranks = [&] { return absl::StrJoin(set, ","); };
  if (!sorted || set.front() < 0 || set.back() >= size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the set [", ranks(), "]: not ranks below ", size, " in order"));
  }
  if (std::binary_search(set.begin(), set.end(), rank)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", rank, " is not of the set [", ranks(), "] that it calls"));
}

CollectiveCall What(CollectiveCall::Operation operation) {
  CollectiveCall what;
  what.set_operation(operation);
  return what;
}

CollectiveCall What(CollectiveCall::Operation operation,
                    const Arithmetic& how) {
  CollectiveCall what = What(operation);
  what.set_dtype(static_cast<uint32_t>(how.dtype));
  what.set_reduction(static_cast<uint32_t>(how.reduction));
  what.set_prescale(how.prescale);
  what.set_postscale(how.postscale);
  return what;
}

absl::Status CheckBytes(absl::Span<const int64_t> bytes, int expected) {
  if (static_cast<int>(bytes.size()) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " sizes for ", expected, " ranks"));
  }
  for (const int64_t size : bytes) {
    if (size < 0 || size > kMaxCollectiveBytes / expected) {
      return absl::InvalidArgumentError(absl::StrCat(size, " bytes"));
    }
  }
  return absl::OkStatus();
}

// A caller begins what is at most so large itself.
constexpr int64_t kLargeBytes = 64 << 10;

}  // namespace

Collectives::Collectives(Context& context, const Cancellation& cancellation,
                         const CollectivesOptions& options)
    : mesh_(context, cancellation, tickets_, options, malformed_),
      runner_(mesh_, tickets_) {}

absl::StatusOr<std::unique_ptr<Collectives>> Collectives::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address, const CollectivesOptions& options) {
  std::unique_ptr<Collectives> collectives(
      new Collectives(context, cancellation, options));
  auto endpoint = collectives->mesh_.Bind(address);
  if (!endpoint.ok()) return endpoint.status();
  collectives->endpoint_ = *std::move(endpoint);
  collectives->thread_ = std::thread([&runner = collectives->runner_] {
    UseStandardFloatingPoint();
    runner.Run();
  });
  return collectives;
}

Collectives::~Collectives() {
  tickets_.Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status Collectives::Connect(CollectiveJob job) {
  if (size_ != 0 || job.rank < 0 || job.rank >= job.size() ||
      job.descriptions.size() != job.endpoints.size() ||
      job.pids.size() != job.endpoints.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", job.rank, " of ", job.size(), " endpoints, ",
                     job.descriptions.size(), " descriptions and ",
                     job.pids.size(), " pids, connected once"));
  }
  rank_ = job.rank;
  size_ = job.size();
  tickets_.Connect(std::move(job));
  return absl::OkStatus();
}

absl::StatusOr<Call> Collectives::MakeCall(absl::string_view name, RankSet set,
                                           CollectiveCall what) const {
  if (size_ == 0) {
    return absl::InvalidArgumentError("a collective before the job is there");
  }
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a collective's name of ", name.size(), " bytes (",
                     name.substr(0, 40), "): not from 1 to ", kMaxNameBytes));
  }
  Call call;
  call.name = std::string(name);
  call.what = std::move(what);
  call.set.assign(set.begin(), set.end());
  for (int rank = 0; set.empty() && rank < size_; ++rank) {
    call.set.push_back(rank);
  }
  if (absl::Status s = CheckSet(call.set, rank_, size_); !s.ok()) return s;
  call.index = static_cast<int>(
      std::lower_bound(call.set.begin(), call.set.end(), rank_) -
      call.set.begin());
  if (absl::Status s = CheckCall(call.what, call.size()); !s.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(call), ": ", s.message()));
  }
  return call;
}

absl::StatusOr<int64_t> Collectives::Post(std::optional<Call> call,
                                          int64_t bytes) {
  auto handle = tickets_.Post(std::move(call));
  if (handle.ok()) runner_.OnPosted(/*large=*/bytes > kLargeBytes);
  return handle;
}

absl::StatusOr<bool> Collectives::Wait(int64_t handle, absl::Duration timeout) {
  return tickets_.Wait(handle, timeout, [this, handle](Time deadline) {
    runner_.RunFor(handle, deadline);
  });
}

absl::StatusOr<int64_t> Collectives::AllReduce(absl::string_view name,
                                               const void* in, void* out,
                                               int64_t num_elements,
                                               const Arithmetic& how,
                                               RankSet set) {
  CollectiveCall what = What(CollectiveCall::ALLREDUCE, how);
  what.set_count(num_elements);
  auto call = MakeCall(name, set, std::move(what));
  if (!call.ok()) return call.status();
  call->in = static_cast<const char*>(in);
  call->out = static_cast<char*>(out);
  return Post(*std::move(call), num_elements * SizeOf(how.dtype));
}

absl::StatusOr<int64_t> Collectives::AllGather(absl::string_view name,
                                               const void* in, int64_t bytes,
                                               absl::string_view tag,
                                               RankSet set, ResultPlace place) {
  CollectiveCall what = What(CollectiveCall::ALLGATHER);
  what.set_tag(std::string(tag));
  auto call = MakeCall(name, set, std::move(what));
  if (!call.ok()) return call.status();
  if (absl::Status s = CheckBytes({bytes}, 1); !s.ok()) return s;
  call->in = static_cast<const char*>(in);
  call->bytes = {bytes};
  call->out = static_cast<char*>(place.out);
  call->out_bytes = place.bytes;
  return Post(*std::move(call), bytes);
}

absl::StatusOr<int64_t> Collectives::Broadcast(absl::string_view name,
                                               void* data, int64_t bytes,
                                               int root, absl::string_view tag,
                                               RankSet set) {
  CollectiveCall what = What(CollectiveCall::BROADCAST);
  what.set_count(bytes);
  what.set_root(root);
  what.set_tag(std::string(tag));
  auto call = MakeCall(name, set, std::move(what));
  if (!call.ok()) return call.status();
  if (!std::binary_search(call->set.begin(), call->set.end(), root)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*call), ": root ", root, " is not of the set [",
                     absl::StrJoin(call->set, ","), "]"));
  }
  call->in = call->out = static_cast<char*>(data);
  return Post(*std::move(call), bytes);
}

absl::StatusOr<int64_t> Collectives::AllToAll(absl::string_view name,
                                              const void* in,
                                              absl::Span<const int64_t> bytes,
                                              absl::string_view tag,
                                              RankSet set, ResultPlace place) {
  CollectiveCall what = What(CollectiveCall::ALLTOALL);
  what.set_tag(std::string(tag));
  auto call = MakeCall(name, set, std::move(what));
  if (!call.ok()) return call.status();
  if (absl::Status s = CheckBytes(bytes, call->size()); !s.ok()) return s;
  call->in = static_cast<const char*>(in);
  call->bytes.assign(bytes.begin(), bytes.end());
  call->out = static_cast<char*>(place.out);
  call->out_bytes = place.bytes;
  return Post(*std::move(call), *std::max_element(bytes.begin(), bytes.end()));
}

absl::StatusOr<int64_t> Collectives::ReduceScatter(
    absl::string_view name, const void* in, void* out,
    absl::Span<const int64_t> counts, const Arithmetic& how, RankSet set) {
  CollectiveCall what = What(CollectiveCall::REDUCESCATTER, how);
  int64_t total = 0;
  for (const int64_t count : counts) {
    what.add_counts(count);
    // A sum that is too large is refused, and so is a negative count.
    if (__builtin_add_overflow(total, count, &total)) total = -1;
  }
  what.set_count(total);
  auto call = MakeCall(name, set, std::move(what));
  if (!call.ok()) return call.status();
  call->in = static_cast<const char*>(in);
  call->out = static_cast<char*>(out);
  return Post(*std::move(call),
              counts.empty() ? 0
                             : *std::max_element(counts.begin(), counts.end()) *
                                   SizeOf(how.dtype));
}

absl::StatusOr<int64_t> Collectives::Barrier(absl::string_view name,
                                             RankSet set) {
  auto call = MakeCall(name, set, What(CollectiveCall::BARRIER));
  if (!call.ok()) return call.status();
  return Post(*std::move(call), 0);
}

absl::Status Collectives::SetOrder(int64_t handle, absl::string_view order) {
  if (order.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an order's name of ", order.size(), " bytes: at most ",
                     kMaxNameBytes));
  }
  return tickets_.SetOrder(handle, order);
}

absl::StatusOr<int64_t> Collectives::JoinUneven() {
  if (size_ == 0) {
    return absl::InvalidArgumentError("a collective before the job is there");
  }
  return Post(std::nullopt, 0);
}

}  // namespace psring
