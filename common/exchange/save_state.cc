#include "common/exchange/save_state.h"

#include "common/state/state_files.h"

namespace psring {

bool EndsJob(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status) || absl::IsAborted(status);
}

absl::StatusOr<proto::SavedState> SaveStateFiles(
    GradientExchange& exchange, const std::string& directory,
    const Layout& layout, absl::Span<const std::string> slot_names,
    Time deadline) {
  const auto laid_out = LayOutStateFiles(directory, layout, slot_names, {});
  if (!laid_out.ok()) return laid_out.status();
  auto saved = exchange.SaveState(directory, deadline);
  if (!saved.ok()) return saved;
  if (absl::Status s = WriteEdges(directory, *saved); !s.ok()) return s;
  return saved;
}

}  // namespace psring
