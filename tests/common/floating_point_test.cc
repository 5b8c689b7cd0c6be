#include "common/floating_point.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace psring {
namespace {

// As torch.set_flush_denormal(True).
void FlushSubnormalNumbers() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t modes;
  asm volatile("mrs %0, fpcr" : "=r"(modes));
  asm volatile("msr fpcr, %0" : : "r"(modes | (uint64_t{1} << 24)));
#endif
}

bool KeepsSubnormalNumbers() {
  volatile float smallest = 1e-38f;
  return smallest * 0.125f != 0.0f;
}

// On a thread of their own: other tests want standard modes.
TEST(FloatingPoint, IsStandardInAThreadThatAnotherHasStarted) {
  std::thread([] {
    FlushSubnormalNumbers();
    EXPECT_FALSE(KeepsSubnormalNumbers());
    std::thread([] {
      EXPECT_FALSE(KeepsSubnormalNumbers());
      UseStandardFloatingPoint();
      EXPECT_TRUE(KeepsSubnormalNumbers());
    }).join();
  }).join();
}

TEST(FloatingPoint, IsTheCallersAgainAfterwards) {
  std::thread([] {
    FlushSubnormalNumbers();
    {
      const StandardFloatingPoint standard;
      EXPECT_TRUE(KeepsSubnormalNumbers());
    }
    EXPECT_FALSE(KeepsSubnormalNumbers());
  }).join();
}

}  // namespace
}  // namespace psring
