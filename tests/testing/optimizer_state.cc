#include "tests/testing/optimizer_state.h"

#include <limits>

#include "common/state/state_files.h"

namespace psring {
namespace {

// Nothing that is not overwritten passes for state.
Slots Unset(const Layout& layout, size_t num_slots) {
  return Slots(num_slots,
               std::vector<float>(layout.num_elements(),
                                  std::numeric_limits<float>::max()));
}

// Files hold nothing of what lies between tensors.
Slots OfTensors(const Layout& layout, const Slots& slots) {
  Slots of_tensors;
  for (const std::vector<float>& slot : slots) {
    std::vector<float>& values = of_tensors.emplace_back();
    for (size_t i = 0; i < layout.tensors().size(); ++i) {
      const Range tensor = layout.tensor(static_cast<int>(i));
      values.insert(values.end(), slot.begin() + tensor.begin,
                    slot.begin() + tensor.end);
    }
  }
  return of_tensors;
}

std::vector<float*> PointersTo(Slots& slots) {
  std::vector<float*> pointers;
  for (std::vector<float>& slot : slots) pointers.push_back(slot.data());
  return pointers;
}

}  // namespace

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

absl::StatusOr<Slots> SlotsInFiles(const std::string& directory,
                                   const Layout& layout,
                                   absl::Span<const std::string> slot_names) {
  std::vector<float> parameters(layout.num_elements());
  Slots slots = Unset(layout, slot_names.size());
  std::vector<ExtraTensor> extras;
  const absl::Status read =
      ReadStateFiles(directory, layout, slot_names, parameters.data(),
                     PointersTo(slots), &extras);
  if (!read.ok()) return read;
  return OfTensors(layout, slots);
}

absl::StatusOr<Slots> FetchedSlots(GradientExchange& exchange,
                                   const Layout& layout, int num_slots,
                                   Time deadline) {
  Slots slots = Unset(layout, num_slots);
  const absl::Status fetched = exchange.FetchSlots(PointersTo(slots), deadline);
  if (!fetched.ok()) return fetched;
  return OfTensors(layout, slots);
}

}  // namespace psring
