#include "ps/ps_follower.h"

#include "ps/ps_exchange.h"

namespace psring {
namespace {

absl::Status NotTheLeader() {
  return absl::FailedPreconditionError(
      "another worker of this host saves the state");
}

}  // namespace

absl::Status PsFollower::Finish(Time deadline) {
  ++step_;
  return absl::OkStatus();
}

absl::Status PsFollower::Synchronise(Before next, Time deadline) {
  return member_.Gather(MeetingName(job_, meetings_++), "", deadline).status();
}

absl::StatusOr<proto::SavedState> PsFollower::SaveState(
    const std::string& directory, Time deadline) {
  return NotTheLeader();
}

absl::Status PsFollower::FetchSlots(absl::Span<float* const> slots,
                                    Time deadline) {
  return NotTheLeader();
}

}  // namespace psring
