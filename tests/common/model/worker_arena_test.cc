#include "common/model/worker_arena.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/model/flat_model.h"

namespace psring {
namespace {

Layout LayoutOf(std::vector<int64_t> sizes, int64_t bucket_bytes = 4) {
  std::vector<proto::TensorShape> tensors;
  for (int64_t size : sizes) {
    proto::TensorShape tensor;
    tensor.set_name("t" + std::to_string(tensors.size()));
    tensor.add_shape(size);
    tensors.push_back(tensor);
  }
  return *Layout::Create(tensors, bucket_bytes);
}

TEST(WorkerArena, ItsPartsDoNotOverlap) {
  const Layout layout = LayoutOf({100, 5000, 17});
  auto arena = WorkerArena::Create(layout, 2);
  ASSERT_TRUE(arena.ok()) << arena.status();
  WorkerArena& a = **arena;
  const char* pushed_end =
      reinterpret_cast<const char*>(&a.pushed(layout.num_buckets() - 1) + 1);
  EXPECT_GE(reinterpret_cast<char*>(&a.pushed(0)),
            reinterpret_cast<char*>(&a.shard(WorkerArena::kMaxShards - 1) + 1));
  EXPECT_LE(pushed_end, reinterpret_cast<char*>(a.staging(0)));
  EXPECT_EQ(a.staging(0) + WorkerArena::kStagingElements, a.staging(1));
  EXPECT_LE(a.staging(1) + WorkerArena::kStagingElements, a.parameters());
  EXPECT_LE(a.parameters() + layout.num_elements(), a.gradients());
  EXPECT_LE(a.gradients() + layout.num_elements(), a.floats() + a.num_floats());
}

TEST(WorkerArena, APeerFindsTheSameParts) {
  const Layout layout = LayoutOf({100, 5000, 17});
  auto model = FlatModel::Create(layout, SameHost::kAuto, 2);
  ASSERT_TRUE(model.ok()) << model.status();
  auto peer = WorkerArena::Map(layout, 2, model->arena->address());
  ASSERT_TRUE(peer.ok()) << peer.status();
  model->gradients.data()[5099] = 3.0f;
  model->arena->pushed(2).store(7);
  model->arena->ready().Set(5);
  EXPECT_EQ((*peer)->gradients()[5099], 3.0f);
  EXPECT_EQ((*peer)->pushed(2).load(), 7);
  EXPECT_TRUE((*peer)->ready().Reached(5));
  (*peer)->parameters()[1] = 4.0f;
  EXPECT_EQ(model->parameters.data()[1], 4.0f);
}

TEST(WorkerArena, AnotherModelIsNotMapped) {
  auto arena = WorkerArena::Create(LayoutOf({100}));
  EXPECT_EQ(WorkerArena::Map(LayoutOf({1000000}), 0, (*arena)->address())
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      WorkerArena::Map(LayoutOf({100}), 1, (*arena)->address()).status().code(),
      absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace psring
