// PSRING_TARGET_CLONES before a function compiles it for several instruction
// sets; the dynamic linker takes the best one that the machine has. Binaries
// travel between hosts, so -march=native is no choice.
#ifndef PSRING_COMMON_MODEL_TARGET_CLONES_H_
#define PSRING_COMMON_MODEL_TARGET_CLONES_H_

// Sanitizers instrument the resolvers, which run before their runtime starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(PSRING_SANITIZED)
#define PSRING_TARGET_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PSRING_TARGET_CLONES
#endif

namespace psring {

// A float wherever it lies in memory, in whatever buffer.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_TARGET_CLONES_H_
