// The fastest copy to memory that has not been read and is not soon: it leaves
// out the reading of what is overwritten. It is also what benchmarks on one
// host are held against.
#ifndef PSRING_COMMON_MODEL_STREAM_COPY_H_
#define PSRING_COMMON_MODEL_STREAM_COPY_H_

#include <cstdint>
#include <string>

namespace psring {

// Copies with non-temporal stores, which do not read what they overwrite, of
// the widest kind that this machine has; both ends 64-byte aligned. Its stores
// are visible to everybody when it returns.
void StreamCopy(float* to, const float* from, int64_t num_elements);

// "AVX-512", "AVX2" or "memcpy": how StreamCopy copies here.
std::string StreamCopyKind();

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_STREAM_COPY_H_
