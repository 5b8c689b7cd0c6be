#include "lab/page/timeline_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/trace/trace_reader.h"

namespace psring {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DoubtsText, SaysWhereClocksAreTooFarApartForTheSteps) {
  TraceInfo process;
  process.clock.emplace_back().round_trip_ns = 50'000'000;
  EXPECT_THAT(DoubtsText({process}), Not(HasSubstr("uncertain")));
  EXPECT_THAT(DoubtsText({process}, /*step_seconds=*/0.2),
              Not(HasSubstr("uncertain")));
  const std::string text = DoubtsText({process}, /*step_seconds=*/0.002);
  EXPECT_THAT(text, HasSubstr("within 25.000 ms"));
  EXPECT_THAT(text, HasSubstr("Beside a step of 2.00 ms that is much"));
}

}  // namespace
}  // namespace psring
