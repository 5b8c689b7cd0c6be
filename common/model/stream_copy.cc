#include "common/model/stream_copy.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace psring {
namespace {

#if defined(__x86_64__)

// Each returns the elements that it copied: whole blocks of one cache line.
__attribute__((target("avx512f"))) int64_t CopyAvx512(float* to,
                                                      const float* from,
                                                      int64_t num_elements) {
  int64_t i = 0;
  for (; i + 16 <= num_elements; i += 16) {
    _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
  }
  _mm_sfence();
  return i;
}

__attribute__((target("avx2"))) int64_t CopyAvx2(float* to, const float* from,
                                                 int64_t num_elements) {
  int64_t i = 0;
  for (; i + 16 <= num_elements; i += 16) {
    _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_load_ps(from + i + 8));
  }
  _mm_sfence();
  return i;
}

int64_t CopyBlocks(float* to, const float* from, int64_t num_elements) {
  if (__builtin_cpu_supports("avx512f")) {
    return CopyAvx512(to, from, num_elements);
  }
  if (__builtin_cpu_supports("avx2")) return CopyAvx2(to, from, num_elements);
  return 0;
}

#else

int64_t CopyBlocks(float*, const float*, int64_t) { return 0; }

#endif

}  // namespace

void StreamCopy(float* to, const float* from, int64_t num_elements) {
  const int64_t copied = CopyBlocks(to, from, num_elements);
  std::memcpy(to + copied, from + copied,
              static_cast<size_t>(num_elements - copied) * sizeof(float));
}

std::string StreamCopyKind() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
  return "memcpy";
}

}  // namespace psring
