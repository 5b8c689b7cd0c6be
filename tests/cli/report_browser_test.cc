// The report in a real browser: that all of it is drawn, at the widths of a
// telephone and of a desktop, light and dark, with no word on the console.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/cli/run_psring.h"
#include "tests/testing/process.h"

namespace psring {
namespace {

using testing::HasSubstr;
using testing::Not;

// Says what is wrong with the page once its charts are drawn.
constexpr char kInspection[] = R"(<script>
addEventListener('load', () => {
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    console.error('the page is wider than the window: ' + root.scrollWidth);
  }
  const canvases = [...document.querySelectorAll('canvas')];
  const drawn = (canvas) => canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v > 0);
  for (const canvas of canvases.filter((canvas) => !drawn(canvas))) {
    console.error('empty: ' + canvas.getAttribute('aria-label'));
  }
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  parent.postMessage(innerWidth + ' wide, ' + canvases.length + ' charts, ' +
                     (dark ? 'dark' : 'light'), '*');
});
</script>)";

// The page in a frame of its own, as a window has a least width.
std::string Frame(int width) {
  return absl::StrCat(
      "<!DOCTYPE html><script>onmessage = (e) => document.title = e.data;"
      "</script><iframe src=\"report.html\" width=\"",
      width, "\" height=\"2000\" style=\"border: 0\"></iframe>");
}

std::string FindBrowser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

class ReportBrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = FindBrowser();
    if (browser_.empty()) {
      GTEST_SKIP() << "no chromium in /usr/bin: the report is not rendered";
    }
    const Ran ran =
        RunPsring({"compare", "--out=" + out_, "--seeds=3", "--workers=1,2",
                   "--slow=none", "--slow=worker:0:x3", "--epochs=3"});
    ASSERT_EQ(ran.code, 0) << ran.output;
    std::ofstream(out_ + "/report.html", std::ios::app) << kInspection;
  }

  // What the browser makes of the page, and what it says meanwhile.
  std::string Render(int width, bool dark) {
    std::ofstream(out_ + "/frame.html") << Frame(width);
    const Ran ran = RunProcess(
        {browser_, "--headless", "--no-sandbox", "--disable-gpu",
         "--disable-dev-shm-usage", "--hide-scrollbars",
         "--virtual-time-budget=10000", "--enable-logging=stderr",
         "--user-data-dir=" + testing::TempDir() + "profile",
         absl::StrCat("--blink-settings=preferredColorScheme=", dark ? 0 : 1),
         "--window-size=1600,2000", "--dump-dom",
         "file://" + std::filesystem::absolute(out_).string() + "/frame.html"},
        absl::Now() + absl::Minutes(2));
    EXPECT_EQ(ran.code, 0) << ran.output.substr(0, 2000);
    return ran.output;
  }

  std::string browser_;
  const std::string out_ = testing::TempDir() + "browser-study";
};

TEST_F(ReportBrowserTest, DrawsEverythingWithoutAWordOnTheConsole) {
  for (const int width : {390, 1280}) {
    for (const bool dark : {false, true}) {
      const std::string page = Render(width, dark);
      // 4 courses for each of 4 circumstances, the rates, 2 of scaling, a
      // histogram for each of 12 ways with servers, the parts of a step.
      EXPECT_THAT(page,
                  HasSubstr(absl::StrCat("<title>", width, " wide, 32 charts, ",
                                         dark ? "dark" : "light")));
      EXPECT_THAT(page, Not(HasSubstr(":CONSOLE")));
    }
  }
}

}  // namespace
}  // namespace psring
