#include "tests/testing/fake_nccl.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/model/reduce.h"

namespace psring {
namespace {

constexpr NcclResult kInvalidArgument = 4;
constexpr NcclResult kInvalidUsage = 5;
// NCCL prepares a launch on a thread of its own for a while.
constexpr int kLooks = 2;

}  // namespace

// Two calls at once on one communicator are a bug of the caller's.
class FakeNccl::OneCall {
 public:
  OneCall(FakeNccl& nccl, Comm& comm) : nccl_(nccl), comm_(comm) {
    MutexLock lock(&nccl_.mutex_);
    alone_ = ++comm_.calls == 1 && !comm_.aborted;
  }
  ~OneCall() {
    MutexLock lock(&nccl_.mutex_);
    --comm_.calls;
  }
  bool alone() const { return alone_; }

 private:
  FakeNccl& nccl_;
  Comm& comm_;
  bool alone_ = false;
};

NcclApi FakeNccl::ApiOf(FakeDevice& device) {
  const auto comm_of = [](NcclComm comm) -> Comm& {
    return *static_cast<Comm*>(comm);
  };
  NcclApi api;
  api.version = [](int* version) {
    *version = 22803;
    return kNcclSuccess;
  };
  api.error_string = [](NcclResult r) { return absl::StrCat("result ", r); };
  api.last_error = [] { return std::string("fake"); };
  api.unique_id = [this](NcclId* id) {
    MutexLock lock(&mutex_);
    std::memset(id, 0, sizeof(*id));
    std::snprintf(id->bytes, sizeof(id->bytes), "id %d", ++num_ids_);
    return kNcclSuccess;
  };
  api.init_rank = [this, &device](NcclComm* comm, int num_ranks,
                                  const NcclId& id, int rank) {
    return Init(device, comm, num_ranks, id, rank);
  };
  api.async_error = [this, comm_of](NcclComm comm, NcclResult* state) {
    return State(comm_of(comm), state);
  };
  api.finalize = [this, comm_of](NcclComm comm) {
    const OneCall call(*this, comm_of(comm));
    if (!call.alone()) return kInvalidUsage;
    MutexLock lock(&mutex_);
    comm_of(comm).finalized = true;
    ++comm_of(comm).clique->num_finalized;
    return kNcclInProgress;
  };
  api.destroy = [this, comm_of](NcclComm comm) {
    const OneCall call(*this, comm_of(comm));
    if (!call.alone()) return kInvalidUsage;
    MutexLock lock(&mutex_);
    comm_of(comm).aborted = true;  // of no more use
    ++num_destroyed_;
    return kNcclSuccess;
  };
  api.abort = [this, comm_of](NcclComm comm) { return Abort(comm_of(comm)); };
  // Groups change nothing: whatever is launched is prepared together.
  api.group_start = [] { return kNcclSuccess; };
  api.group_end = [] { return kNcclInProgress; };
  api.all_reduce = [this, comm_of](const float* in, float* out, size_t count,
                                   NcclComm comm, void* stream) {
    return Prepare(comm_of(comm), {Kind::kAllReduce, in, out, count, 0},
                   stream);
  };
  api.broadcast = [this, comm_of](const float* in, float* out, size_t count,
                                  int root, NcclComm comm, void* stream) {
    return Prepare(comm_of(comm), {Kind::kBroadcast, in, out, count, root},
                   stream);
  };
  api.register_buffer = [this, comm_of](NcclComm comm, void* data,
                                        size_t size_bytes, void** handle) {
    MutexLock lock(&mutex_);
    if (no_buffers_.contains(comm_of(comm).rank)) return kInvalidArgument;
    ++num_registered_;
    *handle = data;
    return kNcclSuccess;
  };
  api.deregister_buffer = [this](NcclComm comm, void* handle) {
    MutexLock lock(&mutex_);
    --num_registered_;
    return kNcclSuccess;
  };
  return api;
}

NcclResult FakeNccl::Init(FakeDevice& device, NcclComm* comm, int num_ranks,
                          const NcclId& id, int rank) {
  MutexLock lock(&mutex_);
  Clique& clique =
      cliques_[std::string(id.bytes, strnlen(id.bytes, sizeof(id.bytes)))];
  clique.num_ranks = num_ranks;
  comms_.push_back(std::make_unique<Comm>());
  Comm& made = *comms_.back();
  made.device = &device;
  made.clique = &clique;
  made.rank = rank;
  made.looks_left = kLooks;
  clique.comms[rank] = &made;
  *comm = &made;
  return kNcclInProgress;
}

NcclResult FakeNccl::State(Comm& comm, NcclResult* state) {
  const OneCall call(*this, comm);
  if (!call.alone()) return kInvalidUsage;
  MutexLock lock(&mutex_);
  *state = kNcclInProgress;
  if (broken_.contains(comm.rank)) {
    *state = broken_[comm.rank];
    return kNcclSuccess;
  }
  const Clique& clique = *comm.clique;
  if (hang_init_ || clique.comms.size() < static_cast<size_t>(clique.num_ranks))
    return kNcclSuccess;
  if (hold_launches_ && !comm.prepared.empty()) return kNcclSuccess;
  if (comm.looks_left > 0) {
    --comm.looks_left;
    return kNcclSuccess;
  }
  if (comm.finalized && clique.num_finalized < clique.num_ranks) {
    return kNcclSuccess;
  }
  for (const Launch& launch : comm.prepared) {
    ++num_launched_;
    comm.device->Enqueue(launch.stream, [this, &comm, launch] {
      RunOp(comm, launch);
      return absl::OkStatus();
    });
  }
  comm.prepared.clear();
  *state = kNcclSuccess;
  return kNcclSuccess;
}

NcclResult FakeNccl::Prepare(Comm& comm, const Op& op, void* stream) {
  const OneCall call(*this, comm);
  if (!call.alone()) return kInvalidUsage;
  MutexLock lock(&mutex_);
  comm.prepared.push_back({op, comm.num_ops++, Stream{stream}});
  comm.looks_left = kLooks;
  return kNcclInProgress;
}

NcclResult FakeNccl::Abort(Comm& comm) {
  MutexLock lock(&mutex_);
  ++num_aborts_;
  mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !hang_aborts_ || released_;
  });
  comm.aborted = true;
  if (!comm.finalized) ++comm.clique->num_finalized;
  return kNcclSuccess;
}

void FakeNccl::RunOp(Comm& comm, const Launch& launch) {
  MutexLock lock(&mutex_);
  Meeting& meeting = comm.clique->meetings[launch.sequence];
  meeting.ops.resize(comm.clique->num_ranks);
  Op op = launch.op;
  op.in = comm.device->Reach(op.in);
  op.out = comm.device->Reach(op.out);
  meeting.ops[comm.rank] = op;
  if (Agree(meeting)) {
    Compute(meeting);
    meeting.done = true;
  }
  mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return meeting.done || comm.aborted || released_;
  });
  if (!meeting.done) meeting.ops[comm.rank].reset();
}

bool FakeNccl::Agree(const Meeting& meeting) {
  const std::optional<Op>& first = meeting.ops.front();
  return std::all_of(
      meeting.ops.begin(), meeting.ops.end(), [&](const auto& op) {
        return op.has_value() && first.has_value() && op->kind == first->kind &&
               op->count == first->count && op->root == first->root;
      });
}

void FakeNccl::Compute(Meeting& meeting) {
  const Op& first = *meeting.ops.front();
  const int64_t count = static_cast<int64_t>(first.count);
  std::vector<float> result(first.count);
  std::vector<const void*> inputs;
  for (const auto& op : meeting.ops) inputs.push_back(op->in);
  switch (first.kind) {
    case Kind::kAllReduce:
      CanonicalSum({0, count}, {0, count}, inputs, 1.0f, result.data());
      break;
    case Kind::kBroadcast: {
      const float* data = meeting.ops[first.root]->in;
      result.assign(data, data + count);
      break;
    }
  }
  for (const auto& op : meeting.ops) {
    std::copy(result.begin(), result.end(), op->out);
  }
}

void FakeNccl::HangInit() {
  MutexLock lock(&mutex_);
  hang_init_ = true;
}

void FakeNccl::HoldLaunches(bool hold) {
  MutexLock lock(&mutex_);
  hold_launches_ = hold;
}

void FakeNccl::HangAborts() {
  MutexLock lock(&mutex_);
  hang_aborts_ = true;
}

void FakeNccl::RefuseBuffersOf(int rank) {
  MutexLock lock(&mutex_);
  no_buffers_.insert(rank);
}

void FakeNccl::Break(int rank, NcclResult result) {
  MutexLock lock(&mutex_);
  broken_[rank] = result;
}

void FakeNccl::Release() {
  MutexLock lock(&mutex_);
  released_ = true;
}

int FakeNccl::num_aborts() const {
  MutexLock lock(&mutex_);
  return num_aborts_;
}

int FakeNccl::num_destroyed() const {
  MutexLock lock(&mutex_);
  return num_destroyed_;
}

int FakeNccl::num_registered() const {
  MutexLock lock(&mutex_);
  return num_registered_;
}

int FakeNccl::num_launched() const {
  MutexLock lock(&mutex_);
  return num_launched_;
}

}  // namespace psring
