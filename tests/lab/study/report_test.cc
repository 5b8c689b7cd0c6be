#include "lab/study/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lab/page/report_files.h"
#include "lab/study/study_charts.h"
#include "tests/lab/study/points.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

RunResult RunOf(const AxisTexts& at) {
  RunResult run;
  run.point = At(at);
  run.num_parameters = 21840;
  run.images_per_second = 1000;
  run.test_accuracy = 0.97;
  run.test_loss = 0.1;
  run.weights_crc32 = 0xabc;
  run.steps = {{1, 0.1, 2.3, 1000}, {2, 0.2, std::nan(""), 1000}};
  run.epochs = {{1, 2, 0.2, 2.0, 0.1, 0.97, 1000}};
  return run;
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    setup_.command = "psring compare --data=<b>\"x\"</b>";
    setup_.flags = {{"--model", "lenet"},
                    {"--data", "</script><script>alert(1)</script>"},
                    {"--epochs", "1"},
                    {"--steps", "0"},
                    {"--target-accuracy", "auto"},
                    {"--", "--threads=1"}};
    setup_.machine.cpu = "A & B";
    comparison_ = Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                          {RunOf({}), RunOf({{"mode", "ring"}})}, {});
  }

  void SetData(const std::string& data) { setup_.flags[1].second = data; }

  StudySetup setup_;
  Comparison comparison_;
};

TEST_F(ReportTest, JsonHoldsTheSetUpTheNumbersAndEveryRunsCourse) {
  const json report = json::parse(RenderJson(setup_, comparison_));
  EXPECT_EQ(report["schema"], "psring-report-2");
  EXPECT_EQ(report["setup"]["flags"]["--model"], "lenet");
  EXPECT_EQ(report["setup"]["flags"]["--"], "--threads=1");
  EXPECT_EQ(report["machine"]["cpu"], "A & B");
  EXPECT_EQ(report["axes"]["mode"], json({"ps-bsp", "ring"}));
  EXPECT_EQ(report["target_accuracy"], 0.97);
  EXPECT_EQ(report["identical_weights"], true);
  ASSERT_EQ(report["variants"].size(), 2u);
  EXPECT_EQ(report["variants"][1]["label"], "ring");
  EXPECT_EQ(report["variants"][0]["images_per_second"]["mean"], 1000);
  EXPECT_EQ(report["variants"][0]["seconds_to_target"]["max"], 0.2);
  EXPECT_EQ(report["variants"][0]["formula"]["server_bytes_per_step"], 174720);
  ASSERT_EQ(report["runs"].size(), 2u);
  const json& bsp = report["runs"][0];
  EXPECT_EQ(bsp["point"]["mode"], "ps-bsp");
  EXPECT_EQ(bsp["weights_crc32"], "00000abc");
  EXPECT_EQ(bsp["steps"][0]["loss"], 2.3);
  EXPECT_TRUE(bsp["steps"][1]["loss"].is_null());
  EXPECT_EQ(bsp["epochs"][0]["test_accuracy"], 0.97);
}

TEST_F(ReportTest, JsonTakesBytesThatAreNoText) {
  SetData("mnist:/data/\xff");
  EXPECT_FALSE(json::parse(RenderJson(setup_, comparison_)).is_discarded());
  EXPECT_THAT(RenderHtml(setup_, comparison_), HasSubstr("mnist:/data/"));
}

TEST_F(ReportTest, HtmlEscapesWhatComesFromOutside) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("--data=&lt;b&gt;&quot;x&quot;&lt;/b&gt;"));
  EXPECT_THAT(html, HasSubstr("A &amp; B"));
}

TEST_F(ReportTest, HtmlHoldsQuestionVerdictTablesWaysFlagsAndCharts) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("<h1>Which way of exchanging gradients"));
  EXPECT_THAT(html, HasSubstr("<p class=\"lead\">"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">images/s</th><td>1,000</td>"));
  EXPECT_THAT(html, HasSubstr("ended with identical weights"));
  EXPECT_THAT(html, HasSubstr("<dt>ring</dt><dd>No servers"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">-- (to every worker)</th>"
                              "<td>--threads=1</td>"));
  EXPECT_THAT(html, HasSubstr("Chart.js v"));
}

// Not those that were to run.
TEST_F(ReportTest, SeedsAreThoseOfTheRunsThatThereAre) {
  const AxisTexts other = {{"seed", "1"}};
  const auto html = [&](const std::vector<RunResult>& runs) {
    return RenderHtml(
        setup_,
        Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}), runs, {}));
  };
  const RunResult ring = RunOf({{"mode", "ring"}});
  EXPECT_THAT(html({RunOf({}), ring}), HasSubstr("One seed: how far"));
  EXPECT_THAT(html({RunOf({}), RunOf(other), ring}),
              HasSubstr("Means over 1 to 2 seeds, and below"));
  EXPECT_THAT(html({RunOf({}), RunOf(other), ring,
                    RunOf({{"mode", "ring"}, {"seed", "1"}})}),
              HasSubstr("Means over 2 seeds, and below"));
}

// As where ring failed with 4 workers.
TEST_F(ReportTest, AWayThatIsAloneInItsCircumstancesIsDrawn) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"workers", "2,4"}}),
              {RunOf({{"workers", "2"}}), RunOf({{"workers", "4"}}),
               RunOf({{"mode", "ring"}, {"workers", "2"}, {"servers", kAny}})},
              {});
  const json courses = ChartsJson(comparison)["courses"];
  ASSERT_EQ(courses.size(), 2u);
  EXPECT_EQ(courses[0]["lines"].size(), 2u);
  ASSERT_EQ(courses[1]["lines"].size(), 1u);
  EXPECT_EQ(courses[1]["lines"][0]["label"], "ps-bsp, 4 workers");
}

// A ring founds its groups behind the others.
TEST_F(ReportTest, AWayLooksTheSameInAllPictures) {
  const AxisTexts ring = {{"mode", "ring"}, {"servers", std::string(kAny)}};
  AxisTexts two_rings = ring;
  two_rings.push_back({"workers", "4"});
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ring,ps-async,ps-bsp"}, {"workers", "2,4"}}),
              {RunOf(ring), RunOf(two_rings), RunOf({}),
               RunOf({{"workers", "4"}}), RunOf({{"mode", "ps-async"}})},
              {});
  const json charts = ChartsJson(comparison);
  std::map<std::string, std::set<int>> looks;
  for (const json& course : charts["courses"]) {
    for (const json& line : course["lines"]) {
      looks[line["label"]].insert(line["look"].get<int>());
    }
  }
  ASSERT_EQ(charts["scaling"].size(), 1u);
  std::vector<std::string> order;
  for (const json& line : charts["scaling"][0]["lines"]) {
    looks[line["label"]].insert(line["look"].get<int>());
    order.push_back(line["label"]);
  }
  EXPECT_THAT(order, testing::ElementsAre("ring", "ps-bsp"));
  EXPECT_THAT(looks["ring"], testing::ElementsAre(0));
  EXPECT_THAT(looks["ps-async"], testing::ElementsAre(1));
  EXPECT_THAT(looks["ps-bsp"], testing::ElementsAre(2));
}

TEST_F(ReportTest, HtmlShowsWhatTheRunsKnowOfStalenessAndStepTimes) {
  EXPECT_THAT(RenderHtml(setup_, comparison_), Not(HasSubstr("<h2>Staleness")));
  comparison_.variants[0].runs[0].staleness_histogram = {{0, {3, 1}}};
  comparison_.variants[0].runs[0].step_times = {{0, {0.01, 0.02, 0.03}}};
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("<h2>Staleness"));
  EXPECT_THAT(html, HasSubstr("<h2>Where a step's time went"));
  EXPECT_THAT(html, HasSubstr("<td>30.00 ms</td>"));
}

TEST_F(ReportTest, ASeedWithoutAFiniteLossHidesNoneOfTheOthers) {
  RunResult lost = RunOf({{"seed", "1"}});
  lost.test_loss = std::nan("");
  comparison_ = Compare(ValuesOf({{"mode", "ps-bsp"}, {"seed", "2"}}),
                        {RunOf({}), lost}, {});
  EXPECT_THAT(RenderHtml(setup_, comparison_), HasSubstr("test loss</th><td"));
}

TEST_F(ReportTest, AScriptIsNotTakenForTheBuiltInTrainer) {
  const auto at = [&](const AxisTexts& point) {
    RunResult run = RunOf(point);
    run.counts_steps = true;
    run.images_per_second = 9.25;
    run.test_loss = std::nan("");
    run.weights_crc32.reset();
    run.steps.clear();
    return run;
  };
  setup_.flags.back().second = "python3 train.py --lr=0.1";
  comparison_ = Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                        {at({}), at({{"mode", "ring"}})}, {});
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("python3 train.py --lr=0.1 (21,840 parameters) "
                              "is run in each way"));
  EXPECT_THAT(html, HasSubstr(">9.2</td>"));
  EXPECT_THAT(html, HasSubstr("Times count from the first step on"));
  EXPECT_THAT(html, Not(HasSubstr("Images a second")));
  EXPECT_THAT(html, Not(HasSubstr("nan<")));
  EXPECT_THAT(html, Not(HasSubstr("test loss</th><td")));
  EXPECT_THAT(html, Not(HasSubstr("identical weights")));
}

// The command line quotes what has a space.
TEST_F(ReportTest, AQuotedFlagOfTheBuiltInTrainerIsNoScript) {
  setup_.flags.back().second = "'--record=/my runs' --threads=1";
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("lenet (21,840 parameters) is trained on"));
  EXPECT_THAT(html, HasSubstr("-- (to every worker)"));
  setup_.flags.back().second = "'./my train.sh' '--data=a b'";
  EXPECT_THAT(RenderHtml(setup_, comparison_),
              HasSubstr("&#39;--data=a b&#39; (21,840 parameters) is run in"));
}

TEST_F(ReportTest, WhatAScriptDoesNotTellIsLeftOut) {
  const auto at = [&](const AxisTexts& point) {
    RunResult run = RunOf(point);
    run.counts_steps = true;
    run.num_parameters = 0;
    run.images_per_second = std::nan("");
    return run;
  };
  setup_.flags.back().second = "./train";
  comparison_ = Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
                        {at({}), at({{"seed", "1"}}), at({{"mode", "ring"}}),
                         at({{"mode", "ring"}, {"seed", "1"}})},
                        {});
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, HasSubstr("./train is run in each way"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">steps/s</th><td>-</td>"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("would send")));
}

TEST_F(ReportTest, InjectedFaultsStandAtTheTop) {
  EXPECT_THAT(RenderHtml(setup_, comparison_),
              Not(HasSubstr("Faults of speed")));
  comparison_ = Compare(ValuesOf({{"link", "worker:1:<x3>"}}),
                        {RunOf({{"link", "worker:1:<x3>"}})}, {});
  const std::string html = RenderHtml(setup_, comparison_);
  const size_t fault = html.find("Faults of speed were injected on purpose");
  ASSERT_NE(fault, std::string::npos);
  EXPECT_LT(fault, html.find("What came out"));
  EXPECT_THAT(html, HasSubstr("--link=worker:1:&lt;x3&gt;"));
}

TEST_F(ReportTest, HtmlNeedsNoNetworkAndLeavesNoPlaceholder) {
  const std::string html = RenderHtml(setup_, comparison_);
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

TEST_F(ReportTest, APlaceholderInTheUsersTextStaysText) {
  SetData("{{DATA}}");
  EXPECT_THAT(RenderHtml(setup_, comparison_), HasSubstr("<td>{{DATA}}</td>"));
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
  EXPECT_THAT(std::string(CheckReportPath(dir + "/new.html").message()),
              HasSubstr("names a file: give the folder for report.html"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/new.html"));
}

// As root, a rename would replace /dev/null.
TEST(ReportFiles, APipeInTheReportsPlaceStaysThere) {
  const std::string dir = testing::TempDir() + "/special";
  std::filesystem::create_directories(dir);
  const std::string pipe = dir + "/report.html";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const absl::Status& s :
       {CheckReportPath(dir), WriteReportFile(dir, "report.html", "text")}) {
    EXPECT_THAT(std::string(s.message()),
                HasSubstr("report.html: it is not a file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(ReportFiles, ALinkInTheReportsPlaceStaysALink) {
  const std::string dir = testing::TempDir() + "/linked";
  std::filesystem::create_directories(dir + "/there");
  ASSERT_TRUE(WriteReportFile(dir + "/there", "r.html", "old").ok());
  std::filesystem::create_symlink("there/r.html", dir + "/r.html");
  ASSERT_TRUE(WriteReportFile(dir, "r.html", "text").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir + "/r.html"));
  std::stringstream text;
  text << std::ifstream(dir + "/there/r.html").rdbuf();
  EXPECT_EQ(text.str(), "text");
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
