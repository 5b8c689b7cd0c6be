// What others have said of operations that this rank has yet to call.
#ifndef PSRING_COLLECTIVES_EARLY_CALLS_H_
#define PSRING_COLLECTIVES_EARLY_CALLS_H_

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "collectives/call.h"
#include "collectives/message.h"
#include "collectives/tickets.h"
#include "common/fnv.h"

namespace psring {

// For whoever runs the mesh. What a rank may have here is bounded by its
// own limits: of its calls, and of the bytes that go along with them.
class EarlyCalls {
 public:
  struct Operation {
    std::vector<CollectiveMessage> calls;
    absl::Status failure;  // it has failed already
  };

  // This rank's next call under a name, or another's: the number of both.
  uint64_t NextOccurrence(const CallKey& key) const {
    const auto found = occurrences_.find(Digest(key));
    return found == occurrences_.end() ? 0 : found->second;
  }
  // This rank has called `key`.
  void Called(const CallKey& key) {
    occurrences_[Digest(key)] = key.occurrence + 1;
  }

  // INVALID_ARGUMENT where its sender has said too much.
  absl::Status Add(CollectiveMessage message) {
    const uint32_t sender = message.header.sender();
    if (++kept_[sender] > 2 * kMaxPending) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", sender, " is ahead by too many collectives"));
    }
    Operation& operation = operations_[KeyOf(message.header.key())];
    // The first failure wins; what was to be computed is no longer needed.
    if (message.header.kind() == proto::CollectiveHeader::FAIL) {
      message.payload = Frame();
      for (CollectiveMessage& call : operation.calls) call.payload = Frame();
      operation.failure.Update(FailureIn(message.header));
    }
    operation.calls.push_back(std::move(message));
    return absl::OkStatus();
  }

  // What there is of `key`, which this rank calls now. Failures are not among
  // the calls.
  Operation Take(const CallKey& key) {
    const auto found = operations_.find(key);
    if (found == operations_.end()) return {};
    Operation operation = std::move(found->second);
    operations_.erase(found);
    for (const CollectiveMessage& call : operation.calls) {
      --kept_[call.header.sender()];
    }
    std::erase_if(operation.calls, [](const CollectiveMessage& call) {
      return call.header.kind() != proto::CollectiveHeader::CALL;
    });
    return operation;
  }

  // What there is of `key`, until the next Add or Take; null: nothing.
  const Operation* Find(const CallKey& key) const {
    const auto found = operations_.find(key);
    return found == operations_.end() ? nullptr : &found->second;
  }

  // Of which there is something.
  std::vector<CallKey> Keys() const {
    std::vector<CallKey> keys;
    for (const auto& [key, operation] : operations_) keys.push_back(key);
    return keys;
  }

 private:
  // Names are many and numbers few: only the names' digests are kept for ever.
  static uint64_t Digest(const CallKey& key) {
    return Fnv().Add(key.set_digest).Add(key.name).value();
  }

  std::unordered_map<uint64_t, uint64_t> occurrences_;
  std::map<CallKey, Operation> operations_;
  std::map<uint32_t, int64_t> kept_;  // messages by sender
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_EARLY_CALLS_H_
