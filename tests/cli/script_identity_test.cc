#include "cli/script_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Key;

class ScriptIdentityTest : public ::testing::Test {
 protected:
  ScriptIdentityTest() {
    std::filesystem::create_directories(folder_ + "nets/layers");
    Write("main.py", "import os, helper as h  # and more\n");
    Write("helper.py",
          "x = 'import never'\n"
          "def f():\n"
          "    from nets import (  # two\n"
          "        big as large,\n"
          "        tiny,\n"
          "    )\n");
    Write("nets/tiny.py", "from \\\n  main import y\n");
    Write("nets/__init__.py", "");
    Write("nets/big.py",
          "from . import small\n"
          "from .layers.conv import Conv\n"
          "import main\n");
    Write("nets/small.py", "from ..outside import z\n");
    Write("nets/layers/conv.py", "");
    Write("nets/unused.py", "");
    Write("never.py", "");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + name) << text;
  }

  const std::string folder_ = testing::TestDirectory() + "/";
};

TEST_F(ScriptIdentityTest, FindsTheModulesThatAScriptImports) {
  EXPECT_THAT(
      ImportedFiles(folder_ + "main.py"),
      ElementsAre(folder_ + "helper.py", folder_ + "nets/__init__.py",
                  folder_ + "nets/big.py", folder_ + "nets/layers/conv.py",
                  folder_ + "nets/small.py", folder_ + "nets/tiny.py"));
}

TEST_F(ScriptIdentityTest, TellsWhenOneOfThemHasChanged) {
  const Args command = {"python3", folder_ + "main.py"};
  const auto before = DescribeScript(command);
  EXPECT_THAT(before, Contains(Key("the file " + folder_ + "main.py")));
  Write("nets/unused.py", "x = 1\n");
  EXPECT_EQ(DescribeScript(command), before);
  Write("nets/layers/conv.py", "x = 1\n");
  EXPECT_NE(DescribeScript(command), before);
}

TEST_F(ScriptIdentityTest, LooksBehindAScriptThatStartsTheTraining) {
  Write("launch", "#!/bin/sh\nexec python3 \"$@\"\n");
  const Args command = {folder_ + "launch", folder_ + "main.py"};
  const auto before = DescribeScript(command);
  EXPECT_THAT(before, Contains(Key("the file " + folder_ + "launch")));
  EXPECT_THAT(before, Contains(Key("the file " + folder_ + "main.py")));
  Write("helper.py", "x = 1\n");
  EXPECT_NE(DescribeScript(command), before);
}

}  // namespace
}  // namespace psring
