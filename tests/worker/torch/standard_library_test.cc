#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(StandardLibrary, IsTheSystemsAndNotWhatLibtorchCarries) {
  ASSERT_EQ(at::ones({2}).sum().item<int>(), 2);  // it is loaded
  std::uintmax_t (*const remove_all)(const std::filesystem::path&) =
      std::filesystem::remove_all;
  Dl_info found = {};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(remove_all), &found), 0);
  EXPECT_THAT(found.dli_fname, HasSubstr("libstdc++.so"));
}

}  // namespace
}  // namespace psring
