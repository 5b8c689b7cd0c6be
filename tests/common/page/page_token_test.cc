#include "common/page/page_token.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

TEST(PageToken, OfJobsThatBeginTogetherIsOneOfTheFirst) {
  const std::string folder = testing::TestDirectory();
  for (int round = 0; round < 50; ++round) {
    const std::string file = absl::StrCat(folder, "/", round, "/token");
    std::vector<std::string> tokens(4);
    std::vector<std::thread> jobs;
    for (std::string& token : tokens) {
      jobs.emplace_back([&file, &token] {
        const auto made = PageToken(file);
        ASSERT_TRUE(made.ok()) << made.status();
        token = *made;
      });
    }
    for (std::thread& job : jobs) job.join();
    for (const std::string& token : tokens) EXPECT_EQ(token, tokens[0]);
    // And nothing lies beside it.
    const auto beside = std::filesystem::path(file).parent_path();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(beside), {}),
              1);
  }
}

TEST(PageToken, ALinkToNowhereIsAnError) {
  const std::string link = testing::TestDirectory() + "/link";
  std::filesystem::create_symlink("/nosuch/token", link);
  EXPECT_EQ(PageToken(link).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// A process takes an invalid argument for a wrong flag, and ends with 2.
TEST(PageToken, AFileThatCannotBeUsedIsNoWrongFlag) {
  const std::string folder = testing::TestDirectory();
  std::ofstream(folder + "/open") << "0123456789abcdef\n";
  std::filesystem::permissions(folder + "/open",
                               std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  for (const std::string& file :
       {folder + "/open", folder, folder + "/open/token"}) {
    EXPECT_EQ(PageToken(file).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << file;
  }
}

}  // namespace
}  // namespace psring
