// The files of a checkpoint that hold tensors, in the safetensors format, so
// that PyTorch's users open them with the safetensors package.
//
// model.safetensors holds every parameter under its name, then the model's
// buffers (batch norm's running statistics); optimizer.safetensors holds
// "SLOT.PARAMETER" for every slot of the optimizer. Tensors lie in the files in
// the flat model's order, so every process that owns a range of the flat model
// (a server, or the one ring rank that writes) writes just its bytes, with
// pwrite, into files that one process has laid out; that one also writes the
// blocks of which several have a part. Whatever the number of writers, the
// files end byte-identical.
#ifndef PSRING_COMMON_STATE_STATE_FILES_H_
#define PSRING_COMMON_STATE_STATE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";

// A tensor beside the parameters; raw little-endian bytes.
struct ExtraTensor {
  std::string name;
  std::string dtype;  // safetensors' names: "F32", "I64"
  std::vector<int64_t> shape;
  std::string bytes;
};

// Creates both files in `directory` (which exists) at their full sizes, with
// headers and `extras` written and everything else zero. Returns what it wrote.
absl::StatusOr<proto::SavedState> LayOutStateFiles(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names,
    absl::Span<const ExtraTensor> extras);

// Blocks of the files that one process alone writes: hosts that share a network
// file system cache whole pages, and two that write parts of the same page may
// lose one. No smaller than a page of any host.
inline constexpr int64_t kBlockBytes = 64 << 10;

// Of the flat model; `parameters` and slots[i] point at element range.begin.
struct StateRange {
  Range range;
  const float* parameters = nullptr;
  std::vector<const float*> slots;
};

// Writes `ranges` of the flat model into files that LayOutStateFiles made, and
// fsyncs them. Other processes may write others at the same time.
// FAILED_PRECONDITION names the file that this process cannot see (the remedy:
// a directory that all hosts share); INTERNAL names the failed call. Returns
// what it wrote and, as edges, what it left to WriteEdges: bytes in blocks that
// are not wholly its own.
absl::StatusOr<proto::SavedState> WriteStateRanges(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names,
    absl::Span<const StateRange> ranges);
// The same of one.
absl::StatusOr<proto::SavedState> WriteStateRange(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names, Range range,
    const float* parameters, absl::Span<const float* const> slots);

// Once all have written their ranges: writes and fsyncs what they have left, as
// the process that laid the files out. INVALID_ARGUMENT where an edge is not
// within the files.
absl::Status WriteEdges(const std::string& directory,
                        const proto::SavedState& saved);

// Reads both files whole. `parameters` and `slots[i]` hold the flat model.
// Tensors of the model's file that are not parameters are appended to `extras`.
// Errors name the file and the tensor: missing, not float32, another shape, a
// truncated file, a header that lies about sizes, state of another optimizer.
absl::Status ReadStateFiles(const std::string& directory, const Layout& layout,
                            absl::Span<const std::string> slot_names,
                            float* parameters, absl::Span<float* const> slots,
                            std::vector<ExtraTensor>* extras);

}  // namespace psring

#endif  // PSRING_COMMON_STATE_STATE_FILES_H_
