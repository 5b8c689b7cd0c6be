#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/report_files.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

ModeResult Mode(const std::string& name) {
  ModeResult mode;
  mode.spec = (*ParseModes(name))[0];
  mode.num_parameters = 21840;
  mode.images_per_second = 1000;
  mode.test_accuracy = 0.97;
  mode.test_loss = 0.1;
  mode.weights_crc32 = 0xabc;
  mode.steps = {{1, 0.1, 2.3, 1000}, {2, 0.2, std::nan(""), 1000}};
  mode.epochs = {{1, 2, 0.2, 2.0, 0.1, 0.97, 1000}};
  return mode;
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    setup_.command = "psring compare --data=<b>\"x\"</b>";
    setup_.data = "</script><script>alert(1)</script>";
    setup_.machine.cpu = "A & B";
    comparison_ = Compare({Mode("ps-bsp"), Mode("ring")});
    comparison_.identical_weights = true;
  }

  ReportSetup setup_;
  Comparison comparison_;
};

TEST_F(ReportTest, JsonHoldsTheSetUpTheNumbersAndTheCourses) {
  const json report = json::parse(RenderJson(setup_, comparison_));
  EXPECT_EQ(report["setup"]["model"], "lenet");
  EXPECT_EQ(report["setup"]["data"], setup_.data);
  EXPECT_EQ(report["machine"]["cpu"], "A & B");
  EXPECT_EQ(report["target_accuracy"], 0.97);
  EXPECT_EQ(report["identical_weights"], true);
  ASSERT_EQ(report["modes"].size(), 2u);
  const json& bsp = report["modes"][0];
  EXPECT_EQ(bsp["name"], "ps-bsp");
  EXPECT_EQ(bsp["images_per_second"], 1000);
  EXPECT_EQ(bsp["weights_crc32"], "00000abc");
  EXPECT_EQ(bsp["steps"][0]["loss"], 2.3);
  EXPECT_TRUE(bsp["steps"][1]["loss"].is_null());
  EXPECT_EQ(bsp["epochs"][0]["test_accuracy"], 0.97);
}

TEST_F(ReportTest, JsonTakesBytesThatAreNoText) {
  setup_.data = "mnist:/data/\xff";
  EXPECT_FALSE(json::parse(RenderJson(setup_, comparison_)).is_discarded());
  EXPECT_THAT(RenderHtml(setup_, comparison_), HasSubstr("mnist:/data/"));
}

TEST_F(ReportTest, HtmlEscapesWhatComesFromOutside) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("\\u003c/script\\u003e"));
  EXPECT_THAT(html, HasSubstr("--data=&lt;b&gt;&quot;x&quot;&lt;/b&gt;"));
  EXPECT_THAT(html, HasSubstr("A &amp; B"));
}

TEST_F(ReportTest, HtmlHoldsTablesVerdictsModesAndCharts) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">images/s</th><td>1,000</td>"));
  EXPECT_THAT(html, HasSubstr("ended with identical weights"));
  EXPECT_THAT(html, HasSubstr("<dt>ring</dt><dd>No servers"));
  EXPECT_THAT(html, HasSubstr("Chart.js v"));
  for (const char* id :
       {"accuracy-seconds", "accuracy-step", "loss-seconds", "loss-step"}) {
    EXPECT_THAT(html, HasSubstr("<canvas id=\"" + std::string(id)));
  }
}

TEST_F(ReportTest, HtmlNeedsNoNetworkAndLeavesNoPlaceholder) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

TEST_F(ReportTest, APlaceholderInTheUsersTextStaysText) {
  setup_.data = "{{DATA}}";
  EXPECT_THAT(RenderHtml(setup_, comparison_), HasSubstr("<dd>{{DATA}}</dd>"));
}

TEST(ReportFiles, AnUnwritableFolderIsFoundAndNamed) {
  const absl::Status s = CheckReportPath("/dev/null/reports");
  EXPECT_EQ(s.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(s.message()), HasSubstr("/dev/null/reports"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("--out"));
}

TEST(ReportFiles, AFolderInTheReportsPlaceIsFound) {
  const std::string dir = testing::TempDir() + "/taken";
  std::filesystem::create_directories(dir + "/report.html");
  EXPECT_THAT(std::string(CheckReportPath(dir).message()),
              HasSubstr("report.html: it is a folder"));
}

TEST(ReportFiles, CheckingMakesTheFolderAndLeavesNothingInIt) {
  const std::string dir = testing::TempDir() + "/new/reports";
  EXPECT_TRUE(CheckReportPath(dir).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

TEST(ReportFiles, WritingReplacesTheFileAsAWhole) {
  const std::string dir = testing::TempDir();
  ASSERT_TRUE(WriteReportFile(dir, "r.html", "a longer text").ok());
  ASSERT_TRUE(WriteReportFile(dir, "r.html", "text").ok());
  std::stringstream text;
  text << std::ifstream(dir + "/r.html").rdbuf();
  EXPECT_EQ(text.str(), "text");
}

}  // namespace
}  // namespace psring
