#include "ring/host_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ring/test_ring.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

// Four ranks, all in this process; those before `num_sharing` share memory.
class HostRanksTest : public ::testing::Test {
 protected:
  void Start(int num_sharing) {
    for (int r = 0; r < 4; ++r) {
      const SameHost same_host =
          r < num_sharing ? SameHost::kAuto : SameHost::kOff;
      models_.push_back(*FlatModel::Create(OneTensor(100), same_host));
      proto::Process* const worker = job_.add_workers();
      worker->set_rank(r);
      if (models_[r].arena == nullptr) continue;
      *worker->mutable_shared_memory() = models_[r].arena->address();
    }
  }

  // As `rank` finds them, where the others tell it of each other that they
  // have mapped whoever shares memory, but for what `tell` changes.
  std::unique_ptr<HostRanks> Find(int rank, const std::string& tell = "") {
    job_.set_rank(rank);
    auto found = HostRanks::Find(
        job_, models_[rank], cancellation_, [&](absl::Span<float> rows) {
          const size_t row = rows.size() / 4;
          for (int a = 0; a < 4; ++a) {
            for (int b = 0; b < 4 && a != rank; ++b) {
              const bool both =
                  models_[a].arena != nullptr && models_[b].arena != nullptr;
              rows[a * row + b] = both ? 1.0f : 0.0f;
            }
          }
          if (tell == "1 cannot reach 0") rows[1 * row + 0] = 0.0f;
          return absl::OkStatus();
        });
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }

  Cancellation cancellation_;
  proto::Welcome job_;
  std::vector<FlatModel> models_;
};

TEST_F(HostRanksTest, ThoseThatShareMemoryAreANode) {
  Start(2);
  const auto ranks = Find(0);
  EXPECT_THAT(ranks->nodes(), ElementsAre(Node{3, 1}, Node{0, 2}, Node{2, 1}));
  EXPECT_EQ(ranks->node(), (Node{0, 2}));
  EXPECT_THAT(ranks->arena(2), IsNull());
  ASSERT_THAT(ranks->arena(1), NotNull());
  models_[1].gradients.data()[7] = 42.0f;
  EXPECT_EQ(ranks->arena(1)->gradients()[7], 42.0f);
  const auto group = ranks->MakeGroup(nullptr);
  ASSERT_THAT(group, NotNull());
  EXPECT_EQ(group->size(), 2);
  EXPECT_EQ(group->self(), 0);
}

TEST_F(HostRanksTest, ARankWithoutAnArenaIsAlone) {
  Start(2);
  const auto ranks = Find(3);
  EXPECT_EQ(ranks->node(), (Node{3, 1}));
  EXPECT_THAT(ranks->MakeGroup(nullptr), IsNull());
}

TEST_F(HostRanksTest, NobodyReliesOnWhatOnlyOneSideSees) {
  Start(2);
  EXPECT_EQ(Find(0, "1 cannot reach 0")->nodes().size(), 4);
}

TEST_F(HostRanksTest, AllOfOneHostAreOneNode) {
  Start(4);
  const auto ranks = Find(2);
  EXPECT_THAT(ranks->nodes(), ElementsAre(Node{0, 4}));
  EXPECT_EQ(ranks->MakeGroup(nullptr)->self(), 2);
}

TEST_F(HostRanksTest, AnErrorOfTheGatherIsItsOwn) {
  Start(4);
  const absl::Status late = absl::DeadlineExceededError("worker 1 is late");
  EXPECT_EQ(HostRanks::Find(job_, models_[0], cancellation_,
                            [&](absl::Span<float>) { return late; })
                .status(),
            late);
}

}  // namespace
}  // namespace psring
