#include "common/model/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/model/flat_model.h"

namespace psring {
namespace {

TEST(StreamCopy, CopiesAnyNumberAndNoMore) {
  for (const int64_t size : {0, 1, 15, 16, 17, 250, 4096, 100001}) {
    FlatBuffer from = *FlatBuffer::Create(size + 1);
    FlatBuffer to = *FlatBuffer::Create(size + 1);
    std::iota(from.span().begin(), from.span().end(), 1.0f);
    StreamCopy(to.data(), from.data(), size);
    EXPECT_TRUE(std::equal(to.data(), to.data() + size, from.data())) << size;
    EXPECT_EQ(to.data()[size], 0.0f) << size;
  }
}

TEST(StreamCopy, SaysHow) { EXPECT_FALSE(StreamCopyKind().empty()); }

}  // namespace
}  // namespace psring
