// `psring predict` as a program. Nothing here looks at how long anything takes,
// and nothing is measured but the rate of updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class PredictTest : public testing::Test {
 protected:
  PredictTest() {
    std::filesystem::remove_all(out_);
    std::filesystem::create_directories(out_);
  }

  Ran Predict(std::vector<std::string> args) {
    args.insert(args.begin(), {"predict", "--out=" + out_});
    return RunPsring(args);
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = out_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  json ReadJson() {
    std::ifstream file(out_ + "/p.json");
    return json::parse(file, nullptr, false);
  }

  const std::string out_ = testing::TempDir() + "predict";
  const std::vector<std::string> all_given_ = {
      "--parameters=25000000", "--compute=100ms,110ms,150ms", "--update=4GB",
      "--json=" + out_ + "/p.json"};
};

TEST_F(PredictTest, PrintsEveryScaleAndWritesJsonAndAPage) {
  std::vector<std::string> args = all_given_;
  args.insert(args.end(), {"--hosts=8,64", "--link=10gbit"});
  const Ran ran = Predict(args);
  ASSERT_EQ(ran.code, 0) << ran.output;
  for (const char* part :
       {"ring", "ps, a server on every host", "best", "25,000,000 parameters",
        "10.0 Gbit/s", "64 hosts: ", "predict.html"}) {
    EXPECT_THAT(ran.output, HasSubstr(part));
  }
  const json report = ReadJson();
  EXPECT_EQ(report["parameters"], 25000000);
  EXPECT_EQ(report["buckets"].size(), 8u);
  EXPECT_EQ(report["hardware"]["link_bits_per_s"], 10e9);
  ASSERT_EQ(report["scales"].size(), 2u);
  std::set<std::string> names;
  int num_best = 0;
  for (const json& p : report["scales"][0]["predictions"]) {
    names.insert(p["name"]);
    EXPECT_GE(p["step_s"], p["compute_s"]) << p;
    EXPECT_GE(p["p99_s"], p["step_s"]) << p;
    EXPECT_GT(p["exchange_s"], 0) << p;
    EXPECT_GT(p["formula_exchange_s"], 0) << p;
    num_best += p["best_of_its_kind"] ? 1 : 0;
    EXPECT_GT(p["efficiency"], 0) << p;
    EXPECT_LE(p["efficiency"], 1) << p;
  }
  EXPECT_EQ(names.size(), 9u);  // ring, 4 x servers, colocated, 3 x spare
  EXPECT_EQ(num_best, 4);       // one of each kind
  EXPECT_TRUE(names.contains(report["scales"][0]["best"]));
  std::ifstream page(out_ + "/predict.html");
  const std::string html((std::istreambuf_iterator<char>(page)), {});
  EXPECT_THAT(html, HasSubstr("Chart"));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
}

TEST_F(PredictTest, SimulatesTheServersThatAreAskedFor) {
  std::vector<std::string> args = all_given_;
  args.insert(args.end(), {"--hosts=4", "--servers=3"});
  const Ran ran = Predict(args);
  ASSERT_EQ(ran.code, 0) << ran.output;
  std::vector<int> servers;
  const json report = ReadJson();
  for (const json& p : report["scales"][0]["predictions"]) {
    servers.push_back(p["servers"]);
  }
  EXPECT_THAT(servers, testing::ElementsAre(0, 3, 4, 7));
}

TEST_F(PredictTest, TakesTheModelFromAComparison) {
  const std::string report = Write("report.json", R"({
    "setup": {"flags": {"--model": "lenet"}},
    "runs": [
      {"num_parameters": 61706, "num_steps": 100, "seconds": 2.0,
       "steps": [{"step": 0, "seconds": 0}, {"step": 10, "seconds": 0.2},
                 {"step": 50, "seconds": 1.0},
                 {"step": 100, "seconds": 2.0}]},
      {"num_parameters": 61706, "num_steps": 100, "seconds": 1.0,
       "steps": [{"step": 10, "seconds": 0.1}, {"step": 60, "seconds": 0.6},
                 {"step": 100, "seconds": 1.0}]}]})");
  const Ran ran = Predict({"--from=" + report, "--hosts=4", "--update=4GB",
                           "--json=" + out_ + "/p.json"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("lenet: 61,706 parameters"));
  const json predicted = ReadJson();
  ASSERT_EQ(predicted["compute_s"].size(), 2u);
  EXPECT_NEAR(predicted["compute_s"][0], 0.01, 1e-9);
}

TEST_F(PredictTest, TakesWhatTheWorkersComputedWhereTheComparisonTells) {
  const std::string report = Write("report.json", R"({
    "setup": {"flags": {"--model": "lenet"}},
    "runs": [
      {"num_parameters": 61706, "num_steps": 100, "seconds": 2.0,
       "steps": [{"step": 10, "seconds": 0.2}, {"step": 100, "seconds": 2.0}],
       "step_seconds": {"0": {"compute": 0.015, "busy": [0.01, 0.02]},
                        "1": {"compute": 0.015, "busy": [0.011, 0.019]},
                        "2": null}}]})");
  const Ran ran = Predict({"--from=" + report, "--hosts=4", "--update=4GB",
                           "--json=" + out_ + "/p.json"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, Not(HasSubstr("its exchange in it")));
  EXPECT_THAT(ReadJson()["compute_s"],
              testing::ElementsAre(0.01, 0.02, 0.011, 0.019));
}

TEST_F(PredictTest, SaysThatOtherProgramsLengthenedWhatWasMeasured) {
  const std::string report = Write("report.json", R"({
    "runs": [
      {"num_parameters": 61706, "num_steps": 100, "seconds": 2.0,
       "steps": [{"step": 10, "seconds": 0.2}, {"step": 100, "seconds": 2.0}],
       "other_cores": 1.24}]})");
  const std::vector<std::string> args = {"--from=" + report, "--hosts=4",
                                         "--update=4GB"};
  const Ran ran = Predict(args);
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("Busy host: other programs kept 1.2 cores busy"));
  EXPECT_THAT(ran.output, HasSubstr("--compute"));
  std::vector<std::string> given = args;
  given.push_back("--compute=100ms");
  EXPECT_THAT(Predict(given).output, Not(HasSubstr("Busy host")));
}

TEST_F(PredictTest, AReportLeavesNoModelToMeasure) {
  const std::string report = Write("report.json", R"({
    "runs": [{"num_parameters": 61706, "num_steps": 100, "seconds": 2.0,
              "steps": [{"step": 10, "seconds": 0.2}]}]})");
  const Ran ran = Predict(
      {"--from=" + report, "--hosts=4", "--update=4GB", "--model=resnet50"});
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("--model has no effect with --from="));
}

// A smaller batch computes faster, and says nothing of the others.
TEST_F(PredictTest, TakesTheFastestRunOfThoseWithoutFlagsOfTheirOwn) {
  const std::string run = R"({"num_parameters": 61706, "num_steps": 100,
       "steps": [{"step": 10, "seconds": 0.2}, {"step": 100, "seconds": 2.0}],
       "point": {"mode": ")";
  const std::string report =
      Write("report.json",
            R"({"runs": [)" + run + R"(ring", "workers": "2"}, "seconds": 3.0,
       "step_seconds": {"0": {"compute": 0.03, "busy": [0.03]}}},)" +
                run + R"(ps-bsp", "workers": "2"}, "seconds": 2.0,
       "step_seconds": {"0": {"compute": 0.02, "busy": [0.02]}}},)" +
                run + R"(ring+batch-size=4", "workers": "2"}, "seconds": 1.0,
       "step_seconds": {"0": {"compute": 0.01, "busy": [0.01]}}}]})");
  const Ran ran = Predict({"--from=" + report, "--hosts=4,4", "--update=4GB",
                           "--json=" + out_ + "/p.json"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("the fastest way: ps-bsp, 2 workers)"));
  EXPECT_THAT(ReadJson()["compute_s"], testing::ElementsAre(0.02));
  EXPECT_EQ(ReadJson()["scales"].size(), 1u);  // 4 hosts, once
}

TEST_F(PredictTest, BusyTimesCountWhateverTheLinksWere) {
  const auto predict = [&](const std::string& point, const std::string& busy) {
    const std::string report = Write("report.json", R"({"runs": [
      {"num_parameters": 61706, "num_steps": 100, "seconds": 2.0,
       "point": )" + point + R"(,
       "steps": [{"step": 10, "seconds": 0.2}, {"step": 100, "seconds": 2.0}],
       "step_seconds": {"0": {"compute": 0.015, "busy": )" +
                                                        busy + "}}}]}");
    return Predict({"--from=" + report, "--hosts=4", "--update=4GB",
                    "--json=" + out_ + "/p.json"});
  };
  const Ran ran = predict(R"({"slow": "none", "link": "1gbit"})", "[0.01]");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ReadJson()["compute_s"], testing::ElementsAre(0.01));
  EXPECT_EQ(predict(R"({"link": "1gbit"})", "[]").code, 1);
  EXPECT_EQ(predict(R"({"slow": "0:2x", "link": "none"})", "[0.01]").code, 1);
}

TEST_F(PredictTest, TakesTheLinkFromABenchUnlessAFlagSaysIt) {
  const std::string bench =
      Write("bench.json", R"({"links": [{"median_bits_per_s": 9.5e8},
                                  {"median_bits_per_s": 9.4e8}]})");
  std::vector<std::string> args = all_given_;
  args.insert(args.end(), {"--from=" + bench, "--hosts=4"});
  ASSERT_EQ(Predict(args).code, 0);
  EXPECT_NEAR(ReadJson()["hardware"]["link_bits_per_s"], 9.4e8, 1);
  args.push_back("--link=2gbit");
  ASSERT_EQ(Predict(args).code, 0);
  EXPECT_NEAR(ReadJson()["hardware"]["link_bits_per_s"], 2e9, 1);
}

TEST_F(PredictTest, AFileOfLinksGivesNeitherParametersNorComputeTimes) {
  const std::string bench =
      Write("bench.json", R"({"links": [{"median_bits_per_s": 9.5e8}]})");
  for (const auto& [given, missing] :
       {std::pair("--compute=1ms", "--parameters"),
        std::pair("--parameters=5", "--compute")}) {
    const Ran ran = Predict({"--from=" + bench, given, "--update=4GB"});
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(missing));
    EXPECT_THAT(ran.output, Not(HasSubstr("measuring")));
  }
}

TEST_F(PredictTest, AFileThatLacksSomethingGetsOneLineThatNamesIt) {
  const std::vector<std::pair<std::string, std::string>> kWrong = {
      {"[1]", "is not a JSON object"},
      {"{\"runs\":" + std::string(1000, '[') + std::string(1000, ']') + "}",
       "has more than 64 levels"},
      {"{}", "has no runs"},
      {R"({"runs": []})", "has no runs[0]"},
      {R"({"runs": [{"seconds": 1, "num_steps": 5}]})",
       "has no runs[0].num_parameters"},
      {R"({"runs": [{"seconds": "1", "num_steps": 5}]})", "runs[0].seconds of"},
      {R"({"runs": [{"seconds": 1, "num_steps": 5, "num_parameters": 9,
                      "steps": [{"step": 1}]}]})",
       "has no runs[0].steps[0].seconds"},
      {R"({"runs": [{"seconds": 1, "num_steps": 5, "num_parameters": 9,
                      "steps": [], "step_seconds": {"0": {"busy": [-5]}}}]})",
       "runs[0].step_seconds of"},
      {R"({"links": []})", "has no links[0]"},
      {R"({"links": [{"median_bits_per_s": 0}]})",
       "links[0].median_bits_per_s of"},
      {R"({"links": [{"median_bits_per_s": 1e-320}]})",
       "links[0].median_bits_per_s of"},
  };
  for (const auto& [text, said] : kWrong) {
    const std::string path = Write("wrong.json", text);
    const Ran ran = Predict({"--from=" + path, "--update=4GB"});
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(path));
    EXPECT_THAT(ran.output, HasSubstr(said));
  }
  EXPECT_THAT(Predict({"--from=" + out_ + "/none.json"}).output,
              HasSubstr("cannot read"));
  const Ran folder = Predict({"--from=" + out_, "--update=4GB"});
  EXPECT_EQ(folder.code, 1) << folder.output;
  EXPECT_THAT(folder.output, HasSubstr(out_ + " is a folder"));
  const Ran unreadable = Predict({"--from=/proc/self/mem", "--update=4GB"});
  EXPECT_EQ(unreadable.code, 1) << unreadable.output;
  EXPECT_THAT(unreadable.output, HasSubstr("/proc/self/mem is not a JSON"));
}

TEST_F(PredictTest, AJsonThatCannotBeWrittenIsSaidBeforeAnythingIsMeasured) {
  const std::string file = Write("taken", "");
  for (const std::string& path : {out_, out_ + "/", file + "/p.json"}) {
    const Ran ran = Predict({"--hosts=2", "--json=" + path});
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("cannot write "));
    EXPECT_THAT(ran.output, HasSubstr(". Choose another file with --json"));
  }
}

TEST_F(PredictTest, TheFolderOfTheJsonIsMade) {
  std::vector<std::string> args = all_given_;
  args.back() = "--json=" + out_ + "/new/p.json";
  args.push_back("--hosts=2");
  EXPECT_EQ(Predict(args).code, 0);
  EXPECT_TRUE(std::filesystem::exists(out_ + "/new/p.json"));
}

TEST_F(PredictTest, AWrongFlagGetsOneLineWithItsValue) {
  const std::pair<std::vector<std::string>, std::vector<std::string>> kWrong[] =
      {
          {{"--hosts=1"}, {"--hosts", "\"1\"", "from 2 to 4096"}},
          {{"--hosts=8,x"}, {"--hosts", "\"x\""}},
          {{"--link=fast"}, {"--link", "\"fast\""}},
          {{"--servers=0"}, {"--servers", "\"0\""}},
          {{"--latency=30"}, {"--latency", "\"30\"", "30us"}},
          {{"--latency=30us,1ms"}, {"--latency", "30us,1ms", "one time"}},
          {{"--compute=1ms"}, {"--compute", "--parameters"}},
          {{"--parameters=5"}, {"--parameters", "--compute", "--model"}},
          {{"--compute=-1ms", "--parameters=5"}, {"--compute", "\"-1ms\""}},
          {{"--update=x"}, {"--update", "\"x\""}},
          {{"--update=4"}, {"--update=4", "unit"}},
          {{"--compute=1ms", "--parameters=1000000000000", "--update=4GB"},
           {"1000000000000 parameters", "--bucket-mb"}},
          {{"--forward-share=2"}, {"--forward-share", "2"}},
          {{"--seed=-1"}, {"--seed", "-1"}},
          {{"--seed=99999999999999999999"}, {"--seed", "range"}},
          {{"--links=1gbit"}, {"--links", "--check"}},
          {{"--check", "--link=1gbit"}, {"--link", "--check"}},
          {{"--check", "--latency=1ms"}, {"--latency", "--check"}},
          {{"--compute=1ms", "--parameters=5", "--model=lenet"},
           {"--model", "--compute and --parameters"}},
          {{"--check", "--hosts=4,6"}, {"--hosts", "2 hosts"}},
          {{"--check", "--hosts=2,65"}, {"--hosts", "at most 64"}},
          {{"--check", "--servers=65"}, {"--servers", "at most 64"}},
      };
  for (const auto& [flags, said] : kWrong) {
    const Ran ran = Predict(flags);
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    for (const std::string& part : said) {
      EXPECT_THAT(ran.output, HasSubstr(part));
    }
  }
}

TEST_F(PredictTest, HelpHasAnExample) {
  const Ran ran = RunPsring({"predict", "--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("--hosts=8,64,512 --link=10gbit"));
}

}  // namespace
}  // namespace psring
