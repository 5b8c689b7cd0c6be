#include "common/counted.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(Counted, OneThingIsSingular) {
  EXPECT_EQ(Counted(1, "server"), "1 server");
  EXPECT_EQ(Counted(0, "server"), "0 servers");
  EXPECT_EQ(Counted(21, "worker"), "21 workers");
}

}  // namespace
}  // namespace psring
