#include "common/cluster/gathers.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/figures.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

// What a process may have in gathers that are not complete: each of its threads
// waits for one.
constexpr int kMaxOpen = 64;
constexpr size_t kMaxOpenBytes = 64 << 20;

// Whether `among` are ranks of the role, and that of `process` is one of them.
bool IsAmong(const proto::Process& process, int promised,
             const std::vector<int>& among) {
  return std::adjacent_find(among.begin(), among.end(),
                            std::greater_equal<>()) == among.end() &&
         among.front() >= 0 && among.back() < promised &&
         std::binary_search(among.begin(), among.end(), process.rank());
}

absl::Status Breach(const proto::Process& process, const proto::Gather& gather,
                    const char* what) {
  return absl::AbortedError(absl::StrCat(Describe(process), " began gather ",
                                         CleanWord(gather.name()), what));
}

}  // namespace

bool Gathers::IsWithinBounds(const proto::Process& process,
                             const proto::Gather& gather) const {
  int open = 1;
  size_t bytes = gather.payload().size() + gather.name().size() +
                 gather.among_size() * sizeof(gather.among(0));
  for (const auto& [key, contributions] : open_) {
    const auto own = contributions.find(process.rank());
    if (key.role != process.role() || own == contributions.end()) continue;
    ++open;
    bytes += own->second.size() + key.name.size() +
             key.among.size() * sizeof(key.among[0]);
  }
  return open <= kMaxOpen && bytes <= kMaxOpenBytes;
}

absl::StatusOr<std::optional<Gathers::Answer>> Gathers::Add(
    const proto::Process& process, int promised, const proto::Gather& gather) {
  const Key key = {process.role(),
                   gather.name(),
                   {gather.among().begin(), gather.among().end()}};
  if (!key.among.empty() && !IsAmong(process, promised, key.among)) {
    return Breach(process, gather, " among wrong ranks");
  }
  // A repeat finds no entry where the gather is complete: its answer is on the
  // way.
  if (gather.repeat() && !open_.contains(key)) return std::nullopt;
  if (!gather.repeat() && !IsWithinBounds(process, gather)) {
    return Breach(process, gather,
                  " while too much that it gathered before was not complete");
  }
  Contributions& contributions = open_[key];
  if (!gather.repeat()) {
    contributions.emplace(process.rank(), gather.payload());
  }
  Answer answer;
  answer.gathered.set_name(gather.name());
  const int expected =
      key.among.empty() ? promised : static_cast<int>(key.among.size());
  if (static_cast<int>(contributions.size()) < expected) {
    if (!gather.repeat()) return std::nullopt;
    for (int i = 0; i < expected; ++i) {
      const int r = key.among.empty() ? i : key.among[i];
      if (!contributions.contains(r)) answer.gathered.add_missing(r);
    }
    answer.ranks = {process.rank()};
    return answer;
  }
  for (auto& [rank, payload] : contributions) {
    answer.gathered.add_payloads(std::move(payload));
    answer.ranks.push_back(rank);
  }
  open_.erase(key);
  return answer;
}

std::optional<Gathers::Missing> Gathers::FirstMissing(
    const proto::Process& process, int promised) const {
  for (const auto& [key, contributions] : open_) {
    if (key.role != process.role() || !contributions.contains(process.rank())) {
      continue;
    }
    const int expected =
        key.among.empty() ? promised : static_cast<int>(key.among.size());
    auto come = contributions.begin();
    for (int i = 0; i < expected; ++i, ++come) {
      const int rank = key.among.empty() ? i : key.among[i];
      if (come == contributions.end() || come->first != rank) {
        return Missing{key.name, rank};
      }
    }
  }
  return std::nullopt;
}

}  // namespace psring
