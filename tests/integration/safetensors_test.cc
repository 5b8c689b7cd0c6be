// PyTorch's users open a checkpoint with the safetensors package, and find the
// names and shapes that they know.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

Ran RunPython(const std::string& python, const std::vector<std::string>& args) {
  std::vector<std::string> argv = {"/usr/bin/env", python};
  argv.insert(argv.end(), args.begin(), args.end());
  return RunProcess(argv, Now() + absl::Minutes(5));
}

// A python that has the package: the repository's, else the active one.
std::string FindPython() {
  const auto tree = std::filesystem::canonical("WORKSPACE").parent_path();
  for (const std::string& python :
       {std::string(tree / ".venv" / "bin" / "python3"),
        std::string("python3")}) {
    const Ran ran = RunPython(python, {"-c", "import numpy, safetensors"});
    if (ran.code == 0) return python;
  }
  return "";
}

class SafetensorsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SafetensorsTest, ThePackageReadsTorchsNamesAndShapes) {
  const std::string python = FindPython();
  if (python.empty()) {
    GTEST_SKIP() << "neither the repository's .venv nor the active python3 has "
                    "safetensors and numpy. Remedy: python3 -m pip install "
                    "safetensors numpy";
  }
  const std::string model = GetParam(), folder = testing::TestDirectory();
  const Ran trained = RunLaunch(
      {.mode = "ps",
       .workers = 1,
       .servers = 2,
       .worker_flags = {"--model=" + model, "--data=digits:train=4,test=4",
                        "--batch-size=2", "--momentum=0.5", "--steps=2",
                        "--checkpoint-dir=" + folder}});
  ASSERT_EQ(trained.code, 0) << trained.output;
  const Ran read = RunPython(python, {"tests/integration/read_safetensors.py",
                                      model, "2", CheckpointAt(folder, 2)});
  EXPECT_EQ(read.code, 0) << read.output;
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsTest,
                         ::testing::Values("lenet", "resnet18"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace psring
