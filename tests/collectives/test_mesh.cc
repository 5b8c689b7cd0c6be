#include "tests/collectives/test_mesh.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/soon.h"

namespace psring {

TestMesh::TestMesh(int size, const CollectivesOptions& options,
                   bool own_threads, int num_sharing)
    : own_threads_(own_threads) {
  job_.epoch = kTestJob;
  for (int rank = 0; rank < size; ++rank) {
    cancellations_.push_back(std::make_unique<Cancellation>());
    CollectivesOptions own = options;
    own.shares_memory = rank < num_sharing;
    auto made =
        Collectives::Create(context_, *cancellations_[rank], "127.0.0.1", own);
    EXPECT_TRUE(made.ok()) << made.status();
    ranks_.push_back(*std::move(made));
    job_.endpoints.push_back(ranks_[rank]->endpoint());
    job_.pids.push_back(getpid());
    job_.descriptions.push_back(absl::StrCat("worker ", rank, " (test)"));
  }
  for (int rank = 0; !own_threads && rank < size; ++rank) Connect(rank);
}

void TestMesh::Connect(int rank) {
  CollectiveJob job = job_;
  job.rank = rank;
  job.main_thread = std::this_thread::get_id();
  EXPECT_EQ(ranks_[rank]->Connect(job), absl::OkStatus());
}

void TestMesh::Run(const std::function<void(int rank, Collectives&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    threads.emplace_back([&, rank] {
      if (own_threads_) Connect(rank);
      body(rank, at(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status Await(Collectives& collectives, absl::StatusOr<int64_t> handle) {
  if (!handle.ok()) return handle.status();
  const Time deadline = Soon();
  while (Now() < deadline) {
    const auto done = collectives.Wait(*handle, absl::Milliseconds(100));
    if (!done.ok()) return done.status();
    if (*done) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("the test's patience has ended");
}

absl::StatusOr<std::vector<std::string>> AwaitBytes(
    Collectives& collectives, absl::StatusOr<int64_t> handle) {
  if (absl::Status s = Await(collectives, handle); !s.ok()) return s;
  const auto sizes = collectives.Sizes(*handle);
  if (!sizes.ok()) return sizes.status();
  int64_t total = 0;
  for (const int64_t size : *sizes) total += size;
  std::string all(total, '\0');
  if (absl::Status s = collectives.Result(*handle, all.data(), total);
      !s.ok()) {
    return s;
  }
  std::vector<std::string> parts;
  size_t begin = 0;
  for (const int64_t size : *sizes) {
    parts.push_back(all.substr(begin, size));
    begin += size;
  }
  EXPECT_EQ(collectives.Release(*handle), absl::OkStatus());
  return parts;
}

}  // namespace psring
