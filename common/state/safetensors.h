// The safetensors format, in memory:
//
//   file   = length header data
//   length = uint64, little-endian: the header's size
//   header = {"__metadata__": {"format": "pt"}, name: tensor, ...} spaces
//   tensor = {"dtype": "F32", "shape": [d, ...], "data_offsets": [begin, end]}
//   data   = the tensors' little-endian bytes, without holes or overlaps
//
// Offsets count from the data's begin. Spaces align the data to 64 bytes.
#ifndef PSRING_COMMON_STATE_SAFETENSORS_H_
#define PSRING_COMMON_STATE_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace psring {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
// Some 100,000 tensors; the reference implementation takes up to 100 MB.
inline constexpr int64_t kSafetensorsMaxHeaderBytes = 16 << 20;

struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  // In the data, [begin, end) bytes.
  int64_t begin = 0;
  int64_t end = 0;
};

// The size of such a tensor. Errors: an unknown dtype, a negative dimension, a
// size beyond int64_t.
absl::StatusOr<int64_t> TensorBytes(const std::string& dtype,
                                    const std::vector<int64_t>& shape);

// Gives the entries their offsets, one after the other, and returns length and
// header. Errors: a name that is not UTF-8, is given twice or is the format's
// own; too many tensors; those of TensorBytes.
absl::StatusOr<std::string> LayOutSafetensors(absl::Span<TensorEntry> entries);

// The header's size from the file's first 8 bytes; DATA_LOSS where a file of
// `file_bytes` cannot have such a header.
absl::StatusOr<int64_t> ParseSafetensorsLength(const char* length,
                                               int64_t file_bytes);

// The entries of an untrusted header, in the data's order. They tile exactly
// `data_bytes`, each as large as its shape and dtype say, or it is DATA_LOSS.
absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(
    const std::string& header, int64_t data_bytes);

}  // namespace psring

#endif  // PSRING_COMMON_STATE_SAFETENSORS_H_
