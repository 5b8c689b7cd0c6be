// The report in a real browser: that all of it is drawn, at the widths of a
// telephone and of a desktop, light and dark, with no word on the console.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/process.h"
#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using testing::HasSubstr;

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
      "</script><iframe src=\"page.html\" width=\"",
      width, "\" height=\"2000\" style=\"border: 0\"></iframe>");
}

std::string FindBrowser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

// The lines of `text` that have `part` in them.
std::string LinesWith(const std::string& part, const std::string& text) {
  std::string lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, part)) absl::StrAppend(&lines, line, "\n");
  }
  return lines;
}

class ReportBrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = FindBrowser();
    if (browser_.empty()) {
      GTEST_SKIP() << "no chromium in /usr/bin: the report is not rendered";
    }
    std::filesystem::remove_all(out_);
  }

  // What the browser makes of a frame with the page, and what it says
  // meanwhile.
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
        Now() + absl::Minutes(2));
    EXPECT_EQ(ran.code, 0) << ran.output.substr(0, 2000);
    return ran.output;
  }

  // Renders OUT/PAGE, which is added to, in every way.
  void ExpectDraws(const std::string& page, int num_charts) {
    std::filesystem::rename(out_ + "/" + page, out_ + "/page.html");
    std::ofstream(out_ + "/page.html", std::ios::app) << kInspection;
    for (const int width : {390, 1280}) {
      for (const bool dark : {false, true}) {
        const std::string output = Render(width, dark);
        EXPECT_EQ(LinesWith(":CONSOLE", output), "");
        EXPECT_THAT(
            LinesWith("<title>", output),
            HasSubstr(absl::StrCat("<title>", width, " wide, ", num_charts,
                                   " charts, ", dark ? "dark" : "light")));
      }
    }
  }

  std::string browser_;
  const std::string out_ = testing::TempDir() + "browser";
};

TEST_F(ReportBrowserTest, DrawsAStudyWithoutAWordOnTheConsole) {
  const Ran ran =
      RunPsring({"compare", "--out=" + out_, "--seeds=3", "--workers=1,2",
                 "--slow=none", "--slow=worker:0:x3", "--epochs=3"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  // 4 courses for each of 4 circumstances, the rates, 2 of scaling, a histogram
  // for each of 12 ways with servers, the parts of a step.
  ExpectDraws("report.html", 32);
}

TEST_F(ReportBrowserTest, DrawsABenchmarkWithoutAWordOnTheConsole) {
  const Ran ran = RunProcess(
      {PsringBinary(), "bench", "allreduce", "--sizes=1KB,10KB", "--ranks=2",
       "--iterations=20", "--peers=none", "--out=" + out_},
      Now() + absl::Minutes(2));
  ASSERT_EQ(ran.code, 0) << ran.output;
  ExpectDraws("bench.html", 1);
}

}  // namespace
}  // namespace psring
