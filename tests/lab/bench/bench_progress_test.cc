#include "lab/bench/bench_progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/time/time.h"

namespace psring {
namespace {

std::string Printed(int columns) {
  char* text = nullptr;
  size_t size = 0;
  FILE* out = open_memstream(&text, &size);
  {
    const Time start = Time::FromNanos(3600000000000);
    BenchProgress progress(out, columns);
    progress.Expect(1);
    progress.Expect(3);
    progress.OnStart("first", start);
    progress.OnDone("first: 1 ms");
    progress.OnStart("second", start + absl::Seconds(20));
  }
  fclose(out);
  std::string printed(text, size);
  free(text);
  return printed;
}

TEST(BenchProgress, OnATerminalItShowsWhatIsMeasuredAndHowLongItTakes) {
  const std::string first = "[........................] 1 of 4: first\n";
  const std::string second =
      "[######..................] 2 of 4: second  1:00 left\n";
  const std::string erase = "\033[1A\r\033[J";
  EXPECT_EQ(Printed(80),
            first + erase + "first: 1 ms\n" + first + erase + second + erase);
}

TEST(BenchProgress, InAFileThereIsALineForEachResult) {
  EXPECT_EQ(Printed(0), "first: 1 ms\n");
}

}  // namespace
}  // namespace psring
