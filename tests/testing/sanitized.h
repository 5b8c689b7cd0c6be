// What a test does less of under a sanitizer.
#ifndef PSRING_TESTS_TESTING_SANITIZED_H_
#define PSRING_TESTS_TESTING_SANITIZED_H_

#include <vector>

namespace psring {

// `counts` of ranks, or of workers; under a sanitizer only those up to `limit`:
// the larger ones take most of a test's time there, and race in no other way.
inline std::vector<int> SanitizedUpTo([[maybe_unused]] int limit,
                                      std::vector<int> counts) {
#ifdef PSRING_SANITIZED
  std::erase_if(counts, [limit](int count) { return count > limit; });
#endif
  return counts;
}

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_SANITIZED_H_
