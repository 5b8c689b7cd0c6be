#include "lab/page/text_table.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(TextTable, AlignsItsColumns) {
  EXPECT_EQ(TextTable({{"", "ps-bsp", "ring"},
                       {"images/s", "1", "12,345"},
                       {"x", "1234567", ""}}),
            "           ps-bsp    ring\n"
            "-------------------------\n"
            "images/s        1  12,345\n"
            "x         1234567        \n");
}

}  // namespace
}  // namespace psring
