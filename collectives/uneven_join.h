// Which ranks have no more data: pure state.
#ifndef PSRING_COLLECTIVES_UNEVEN_JOIN_H_
#define PSRING_COLLECTIVES_UNEVEN_JOIN_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace psring {

// One rank's view of JoinUneven, round after round. A round ends when all ranks
// have joined; rank 0 says so, and who was the last as it saw them.
class UnevenJoin {
 public:
  explicit UnevenJoin(int size) : size_(size) {}

  uint64_t round() const { return round_; }

  // A rank joins a round: this one, or the next, which may be heard of first.
  // Whether it is the last of this round.
  bool OnJoined(int rank, uint64_t round) {
    joined_[round].insert(rank);
    return round == round_ && static_cast<int>(joined_[round].size()) == size_;
  }

  bool HasJoined(int rank) const {
    const auto found = joined_.find(round_);
    return found != joined_.end() && found->second.contains(rank);
  }

  std::vector<int32_t> Missing() const {
    std::vector<int32_t> missing;
    for (int rank = 0; rank < size_; ++rank) {
      if (!HasJoined(rank)) missing.push_back(rank);
    }
    return missing;
  }

  void EndRound() { joined_.erase(round_++); }

 private:
  const int size_;
  uint64_t round_ = 0;
  std::map<uint64_t, std::set<int>> joined_;  // by round
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_UNEVEN_JOIN_H_
