// A place on disk for one test.
#ifndef PSRING_TESTS_TESTING_TEST_DIRECTORY_H_
#define PSRING_TESTS_TESTING_TEST_DIRECTORY_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace psring::testing {

// A new, empty directory named for the running test.
inline std::string TestDirectory(const std::string& suffix = "") {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(test->test_suite_name()) + "." + test->name() + suffix);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path.string();
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  EXPECT_TRUE(file.good()) << path;
}

}  // namespace psring::testing

#endif  // PSRING_TESTS_TESTING_TEST_DIRECTORY_H_
