// The part of psring.h about collectives.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/collectives.h"
#include "python/capi/process.h"
#include "python/capi/psring.h"

using namespace psring;  // NOLINT: what follows is C's

namespace {

using RankSet = Collectives::RankSet;

int NumWorkers(const Lease& p) {
  return p->session->job().job().workers_size();
}

// The ranks that a caller names; none: all.
absl::StatusOr<RankSet> SetOf(const Lease& p, const int32_t* set,
                              int32_t size) {
  if (set == nullptr) return RankSet();
  if (size < 1 || size > NumWorkers(p)) {
    return Invalid(absl::StrCat("a set of ", size, " ranks, where the job has ",
                                NumWorkers(p)));
  }
  return RankSet(set, static_cast<size_t>(size));
}

absl::StatusOr<Arithmetic> ArithmeticOf(int dtype, int reduction,
                                        double prescale, double postscale) {
  if (dtype < 0 || dtype >= kNumDTypes) {
    return Invalid(absl::StrCat("there is no dtype ", dtype));
  }
  if (reduction < 0 || reduction >= kNumReductions) {
    return Invalid(absl::StrCat("there is no reduction ", reduction));
  }
  return Arithmetic{.dtype = static_cast<DType>(dtype),
                    .reduction = static_cast<Reduction>(reduction),
                    .prescale = prescale,
                    .postscale = postscale};
}

int64_t HandleOf(const absl::StatusOr<int64_t>& started) {
  if (!started.ok()) return CodeOf(started.status());
  return HandleOfCollective(*started);
}

// What `start` starts among the ranks that a caller names; it is also told how
// many they are.
template <typename Start>
int64_t StartAmong(const int32_t* set, int32_t set_size, const Start& start) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  const auto ranks = SetOf(p, set, set_size);
  if (!ranks.ok()) return CodeOf(ranks.status());
  const size_t size = ranks->empty() ? NumWorkers(p) : ranks->size();
  return HandleOf(start(p->session->collectives(), *ranks, size));
}

}  // namespace

extern "C" {

int64_t psring_allreduce(const char* name, const void* in, void* out,
                         int64_t count, int dtype, int reduction,
                         double prescale, double postscale, const int32_t* set,
                         int32_t set_size) {
  const auto how = ArithmeticOf(dtype, reduction, prescale, postscale);
  if (!how.ok()) return CodeOf(how.status());
  return StartAmong(set, set_size, [&](Collectives& c, RankSet ranks, size_t) {
    return c.AllReduce(name, in, out, count, *how, ranks);
  });
}

int64_t psring_allgather(const char* name, const void* in, int64_t bytes,
                         const char* tag, void* out, int64_t out_bytes,
                         const int32_t* set, int32_t set_size) {
  return StartAmong(set, set_size, [&](Collectives& c, RankSet ranks, size_t) {
    return c.AllGather(name, in, bytes, tag, ranks, {out, out_bytes});
  });
}

int64_t psring_broadcast(const char* name, void* data, int64_t bytes, int root,
                         const char* tag, const int32_t* set,
                         int32_t set_size) {
  return StartAmong(set, set_size, [&](Collectives& c, RankSet ranks, size_t) {
    return c.Broadcast(name, data, bytes, root, tag, ranks);
  });
}

int64_t psring_alltoall(const char* name, const void* in, const int64_t* bytes,
                        const char* tag, void* out, int64_t out_bytes,
                        const int32_t* set, int32_t set_size) {
  return StartAmong(set, set_size,
                    [&](Collectives& c, RankSet ranks, size_t size) {
                      return c.AllToAll(name, in, {bytes, size}, tag, ranks,
                                        {out, out_bytes});
                    });
}

int64_t psring_reducescatter(const char* name, const void* in, void* out,
                             const int64_t* counts, int dtype, int reduction,
                             double prescale, double postscale,
                             const int32_t* set, int32_t set_size) {
  const auto how = ArithmeticOf(dtype, reduction, prescale, postscale);
  if (!how.ok()) return CodeOf(how.status());
  return StartAmong(
      set, set_size, [&](Collectives& c, RankSet ranks, size_t size) {
        return c.ReduceScatter(name, in, out, {counts, size}, *how, ranks);
      });
}

int64_t psring_barrier(const char* name, const int32_t* set, int32_t set_size) {
  return StartAmong(set, set_size, [&](Collectives& c, RankSet ranks, size_t) {
    return c.Barrier(name, ranks);
  });
}

int64_t psring_join_uneven(void) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  return HandleOf(p->session->collectives().JoinUneven());
}

int psring_set_order(int64_t handle, const char* order) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  if (!IsCollective(handle)) {
    return CodeOf(Invalid("only a collective has an order"));
  }
  return CodeOf(
      p->session->collectives().SetOrder(CollectiveOf(handle), order));
}

int psring_result_sizes(int64_t handle, int64_t* bytes, int32_t set_size) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  if (!IsCollective(handle)) {
    return CodeOf(Invalid("only a collective's result has sizes by rank"));
  }
  const auto sizes = p->session->collectives().Sizes(CollectiveOf(handle));
  if (!sizes.ok()) return CodeOf(sizes.status());
  if (static_cast<int32_t>(sizes->size()) != set_size) {
    return CodeOf(Invalid(absl::StrCat("the result is of ", sizes->size(),
                                       " ranks, not ", set_size)));
  }
  std::copy(sizes->begin(), sizes->end(), bytes);
  return PSRING_OK;
}

}  // extern "C"
