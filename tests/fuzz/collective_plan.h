// A collective that three ranks call: what each brings, and what it gets.
#ifndef PSRING_TESTS_FUZZ_COLLECTIVE_PLAN_H_
#define PSRING_TESTS_FUZZ_COLLECTIVE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "protos/collective.pb.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {

inline constexpr int kRanks = 3;
inline constexpr int64_t kMostBytes = 1300000 + 4;

// Bytes that go eagerly, by one chunk, by several, or by more than a window.
int64_t SomeSize(Bytes& input);

struct CollectivePlan {
  proto::CollectiveCall what;
  bool over_input = false;  // an ALLREDUCE whose result replaces what it sums
  // By rank: what an ALLGATHER (one) or an ALLTOALL (one a rank) brings.
  std::vector<std::vector<int64_t>> bytes;

  // Whether a rank has one memory for what it brings and gets.
  bool in_place() const;
  std::string Brings(int rank) const;
  std::string Gets(int rank) const;
  // Of `bytes`: what it gets from each.
  std::vector<int64_t> SizesFor(int rank) const;
};

CollectivePlan SomePlan(Bytes& input);

}  // namespace psring::fuzz

#endif  // PSRING_TESTS_FUZZ_COLLECTIVE_PLAN_H_
