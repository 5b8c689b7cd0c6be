#include "common/cluster/cluster_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

class PortFileTest : public ::testing::Test {
 protected:
  // What a process hosts whose coordinator's port goes to `file`.
  absl::StatusOr<std::unique_ptr<ClusterSession>> Start(
      const std::string& file) {
    ClusterOptions options;
    options.placement.hosts_coordinator = true;
    options.placement.coordinator = {"127.0.0.1", 0};
    options.placement.num_servers = 1;
    options.placement.num_workers = 1;
    options.coordinator_port_file = file;
    context_.emplace(1);
    return ClusterSession::Start(*context_, cancellation_, options);
  }

  const std::string folder_ = testing::TestDirectory();
  std::optional<Context> context_;  // the last session's
  Cancellation cancellation_;
};

TEST_F(PortFileTest, HoldsThePortAloneWhateverItHeldBefore) {
  const std::string file = absl::StrCat(folder_, "/port");
  testing::WriteFile(file, "of an earlier job");
  const auto session = Start(file);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto address = ParseEndpoint((*session)->coordinator_endpoint());
  EXPECT_EQ(testing::ReadFile(file), absl::StrCat(address->port, "\n"));
}

TEST_F(PortFileTest, TakesThePlaceOfNoPipeAndOfNoLink) {
  const std::string pipe = absl::StrCat(folder_, "/pipe");
  const std::string link = absl::StrCat(folder_, "/link");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", link);
  for (const std::string& path : {pipe, link}) {
    EXPECT_THAT(std::string(Start(path).status().message()),
                HasSubstr(absl::StrCat("--coordinator-port-file: cannot write ",
                                       path)));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

}  // namespace
}  // namespace psring
