#include "collectives/call.h"

#include <bit>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fnv.h"

namespace psring {
namespace {

using proto::CollectiveCall;

bool Reduces(const CollectiveCall& what) {
  return what.operation() == CollectiveCall::ALLREDUCE ||
         what.operation() == CollectiveCall::REDUCESCATTER;
}

// NaN is equal to itself here.
bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// Of all calls: those that reduce nothing name them in errors.
absl::Status CheckTypes(const CollectiveCall& what) {
  if (what.dtype() < kNumDTypes && what.reduction() < kNumReductions) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", what.dtype(), ", reduction ", what.reduction(),
                   ": there are ", kNumDTypes, " and ", kNumReductions));
}

absl::Status CheckArithmetic(const CollectiveCall& what) {
  const DType dtype = static_cast<DType>(what.dtype());
  if (IsFloating(dtype)) return absl::OkStatus();
  if (static_cast<Reduction>(what.reduction()) == Reduction::kAverage) {
    return absl::InvalidArgumentError(
        absl::StrCat("an average of ", NameOf(dtype),
                     ": only floats have one; sum, then divide"));
  }
  if (what.prescale() != 1 || what.postscale() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a scaled reduction of ", NameOf(dtype),
                     ": only floats are scaled; the factors must be 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const CollectiveCall& what, int set_size) {
  const bool wanted = what.operation() == CollectiveCall::REDUCESCATTER;
  if (what.counts_size() != (wanted ? set_size : 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what.counts_size(), " counts for ", set_size, " ranks"));
  }
  int64_t sum = 0;
  for (const int64_t count : what.counts()) {
    if (count < 0 || count > kMaxCollectiveBytes - sum) {
      return absl::InvalidArgumentError(absl::StrCat("a count of ", count));
    }
    sum += count;
  }
  if (!wanted || sum == what.count()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what.count(), " elements, but counts of ", sum));
}

// What `what` brings, without tag: "10 float32".
std::string Payload(const CollectiveCall& what) {
  if (what.operation() == CollectiveCall::BROADCAST) {
    return absl::StrCat(what.count(), " bytes");
  }
  return absl::StrCat(what.count(), " ",
                      NameOf(static_cast<DType>(what.dtype())));
}

}  // namespace

CallKey KeyOf(const proto::CollectiveKey& key) {
  return {key.set_digest(), key.name(), key.occurrence(), key.set_size()};
}

proto::CollectiveKey ProtoOf(const CallKey& key) {
  proto::CollectiveKey result;
  result.set_set_digest(key.set_digest);
  result.set_set_size(key.set_size);
  result.set_name(key.name);
  result.set_occurrence(key.occurrence);
  return result;
}

uint64_t DigestOf(absl::Span<const int32_t> set) {
  Fnv digest;
  for (const int32_t rank : set) digest.Add(static_cast<uint64_t>(rank));
  return digest.value();
}

Arithmetic Call::arithmetic() const {
  return {static_cast<DType>(what.dtype()),
          static_cast<Reduction>(what.reduction()), what.prescale(),
          what.postscale()};
}

absl::Status CheckCall(const CollectiveCall& what, int set_size) {
  if (!CollectiveCall::Operation_IsValid(what.operation()) ||
      what.operation() == CollectiveCall::OPERATION_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown operation ", what.operation()));
  }
  if (what.count() < 0 || what.count() > kMaxCollectiveBytes / 8) {
    return absl::InvalidArgumentError(
        absl::StrCat(what.count(), " elements: not from 0 to 2^37"));
  }
  if (what.tag().size() > kMaxTagBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a tag of ", what.tag().size(), " bytes: more than ", kMaxTagBytes));
  }
  if (absl::Status s = CheckTypes(what); !s.ok()) return s;
  if (Reduces(what)) {
    if (absl::Status s = CheckArithmetic(what); !s.ok()) return s;
  }
  return CheckCounts(what, set_size);
}

absl::string_view NameOf(CollectiveCall::Operation operation) {
  switch (operation) {
    case CollectiveCall::ALLREDUCE:
      return "allreduce";
    case CollectiveCall::ALLGATHER:
      return "allgather";
    case CollectiveCall::BROADCAST:
      return "broadcast";
    case CollectiveCall::ALLTOALL:
      return "alltoall";
    case CollectiveCall::REDUCESCATTER:
      return "reducescatter";
    case CollectiveCall::BARRIER:
      return "barrier";
    default:
      return "collective";
  }
}

std::string Describe(CollectiveCall::Operation operation,
                     absl::string_view name) {
  return absl::StrCat(NameOf(operation), " '", absl::CHexEscape(name), "'");
}

std::string Describe(const Call& call) {
  return Describe(call.what.operation(), call.name);
}

std::string Difference(absl::string_view name, const CollectiveCall& a,
                       int rank_a, const CollectiveCall& b, int rank_b) {
  if (rank_b < rank_a) return Difference(name, b, rank_b, a, rank_a);
  const auto differ = [&](absl::string_view verb, const std::string& one,
                          const std::string& other) {
    const bool same = a.operation() == b.operation();
    return absl::StrCat(same ? Describe(a.operation(), name)
                             : absl::StrCat("'", absl::CHexEscape(name), "'"),
                        ": rank ", rank_a, " ", verb, " ", one, ", rank ",
                        rank_b, " ", verb, " ", other);
  };
  if (a.operation() != b.operation()) {
    return differ("calls", std::string(NameOf(a.operation())),
                  std::string(NameOf(b.operation())));
  }
  if (a.tag() != b.tag()) {
    return differ("brings", absl::StrCat("'", absl::CHexEscape(a.tag()), "'"),
                  absl::StrCat("'", absl::CHexEscape(b.tag()), "'"));
  }
  if (a.count() != b.count() || a.dtype() != b.dtype()) {
    return differ("brings", Payload(a), Payload(b));
  }
  if (a.reduction() != b.reduction()) {
    return differ("wants",
                  absl::StrCat(NameOf(static_cast<Reduction>(a.reduction()))),
                  absl::StrCat(NameOf(static_cast<Reduction>(b.reduction()))));
  }
  if (a.root() != b.root()) {
    return differ("names root", absl::StrCat(a.root()), absl::StrCat(b.root()));
  }
  if (!SameBits(a.prescale(), b.prescale()) ||
      !SameBits(a.postscale(), b.postscale())) {
    const auto factors = [](const CollectiveCall& c) {
      return absl::StrCat(c.prescale(), " before and ", c.postscale(),
                          " after");
    };
    return differ("multiplies by", factors(a), factors(b));
  }
  const auto counts = [](const CollectiveCall& c) {
    return absl::StrCat("[", absl::StrJoin(c.counts(), ","), "]");
  };
  if (counts(a) == counts(b)) return "";
  return differ("wants counts", counts(a), counts(b));
}

std::vector<Range> SlicesOf(const CollectiveCall& what, int set_size) {
  std::vector<Range> slices;
  int64_t begin = 0;
  for (int c = 0; c < set_size; ++c) {
    if (what.operation() == CollectiveCall::ALLREDUCE) {
      slices.push_back(NearEqualPart({0, what.count()}, set_size, c));
      continue;
    }
    slices.push_back({begin, begin + what.counts(c)});
    begin += what.counts(c);
  }
  return slices;
}

}  // namespace psring
