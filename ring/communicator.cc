#include "ring/communicator.h"

#include <cstring>
#include <vector>

#include "common/model/layout.h"

namespace psring {

// An allgather ends nowhere before it has begun everywhere.
absl::Status Communicator::Barrier(absl::Time deadline) {
  std::vector<float> token(size() * kAlignElements, 0.0f);
  return AllGather(absl::MakeSpan(token), deadline);
}

// Each rank's slice carries its values' bytes; slices are whole blocks of
// kAlignElements, so that NearEqualPart gives every rank the same.
absl::Status Communicator::SumMetrics(absl::Span<double> values,
                                      absl::Time deadline) {
  const size_t bytes = values.size() * sizeof(double);
  const size_t block = kAlignElements * sizeof(float);
  const size_t slice_bytes = (bytes + block - 1) / block * block;
  std::vector<float> all(slice_bytes / sizeof(float) * size(), 0.0f);
  char* base = reinterpret_cast<char*>(all.data());
  std::memcpy(base + rank() * slice_bytes, values.data(), bytes);
  if (absl::Status s = AllGather(absl::MakeSpan(all), deadline); !s.ok()) {
    return s;
  }
  for (double& value : values) value = 0.0;
  for (int r = 0; r < size(); ++r) {
    for (size_t i = 0; i < values.size(); ++i) {
      double value;
      std::memcpy(&value, base + r * slice_bytes + i * sizeof(double),
                  sizeof(double));
      values[i] += value;
    }
  }
  return absl::OkStatus();
}

}  // namespace psring
