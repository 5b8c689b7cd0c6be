#include "lab/study/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lab/study/summary.h"
#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Ten steps an epoch; 0.9 is reached after `epochs` of `epoch_seconds` each.
RunResult RunOf(const AxisTexts& at, int epochs, double epoch_seconds) {
  RunResult run;
  run.point = At(at);
  run.num_parameters = 1000;
  run.weights_crc32 = 0xabc;
  for (int i = 1; i <= 5; ++i) {
    const double accuracy = i < epochs ? 0.5 : 0.9;
    run.epochs.push_back({i, 10 * i, i * epoch_seconds, 1, 1, accuracy, 1000});
  }
  run.num_steps = 50;
  run.seconds = 5 * epoch_seconds;
  run.images_per_second = 1000;
  run.test_accuracy = run.epochs.back().test_accuracy;
  return run;
}

const AxisTexts kThreeWays = {{"mode", "ps-bsp,ps-async,ring"}, {"seed", "2"}};

Comparison ThreeWays() {
  return Compare(ValuesOf(kThreeWays),
                 {RunOf({}, 4, 2.0), RunOf({{"seed", "1"}}, 4, 2.2),
                  RunOf({{"mode", "ps-async"}}, 5, 1.0),
                  RunOf({{"mode", "ps-async"}, {"seed", "1"}}, 5, 1.1),
                  RunOf({{"mode", "ring"}}, 4, 1.2),
                  RunOf({{"mode", "ring"}, {"seed", "1"}}, 4, 1.3)},
                 {});
}

TEST(Headlines, SayWhoIsFirstByHowMuchAndWhomSeedsCannotTellApart) {
  EXPECT_THAT(
      Headlines(ThreeWays()),
      ElementsAre(
          "90.00% accuracy is reached first by ring, after 5.00 s: 1.68 "
          "times faster than ps-bsp. ps-async (5.25 s) does not differ from "
          "it by more than the seeds scatter."));
}

TEST(Headlines, SpeakOfALossThatRunsAreJudgedBy) {
  const auto run = [](const AxisTexts& at, double seconds, double loss) {
    RunResult result = RunOf(at, 1, seconds);
    for (EpochSample& epoch : result.epochs) epoch.test_accuracy = std::nan("");
    result.epochs.back().test_loss = result.test_loss = loss;
    result.test_accuracy = std::nan("");
    return result;
  };
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring,ps-async"}}),
              {run({}, 2.0, 0.25), run({{"mode", "ring"}}, 1.0, 0.3125),
               run({{"mode", "ps-async"}}, 1.0, 0.9)},
              {});
  EXPECT_THAT(Headlines(comparison),
              ElementsAre("A test loss of 0.3125 is reached first by ring, "
                          "after 5.00 s: 2.00 times faster than ps-bsp. "
                          "ps-async did not reach it (at best 0.9)."));
  EXPECT_THAT(Questions(comparison),
              ElementsAre(HasSubstr("reaches the same loss first?")));
  EXPECT_THAT(Findings(comparison),
              Contains("The final test losses are ps-bsp 0.25, ring 0.3125 and "
                       "ps-async 0.9."));
  const std::string table =
      absl::StrJoin(SummaryCells(comparison), "\n",
                    [](std::string* out, const std::vector<std::string>& row) {
                      absl::StrAppend(out, absl::StrJoin(row, "|"));
                    });
  EXPECT_THAT(table,
              HasSubstr("time to a test loss of 0.3125|10.0 s|5.00 s|-"));
  EXPECT_THAT(table, HasSubstr("test loss|0.2500|0.3125|0.9000"));
  EXPECT_THAT(table, Not(HasSubstr("accuracy")));
}

TEST(Headlines, OneSeedTellsSmallDifferencesFromNothing) {
  const auto headline = [](double ring) {
    return Headlines(Compare(
        ValuesOf({{"mode", "ps-bsp,ring"}}),
        {RunOf({}, 4, 2.0), RunOf({{"mode", "ring"}}, 4, ring)}, {}))[0];
  };
  EXPECT_THAT(
      headline(1.95),
      AllOf(HasSubstr("ps-bsp (8.00 s) does not differ"),
            HasSubstr("a single seed can tell"), Not(HasSubstr("faster"))));
  EXPECT_THAT(headline(1.0), HasSubstr("2.00 times faster than ps-bsp"));
}

TEST(Headlines, NameWhoDidNotReachTheTarget) {
  RunResult never = RunOf({{"mode", "ring"}}, 9, 1.0);
  const auto values = ValuesOf({{"mode", "ps-bsp,ring"}});
  EXPECT_THAT(Headlines(Compare(values, {RunOf({}, 4, 2.0), never}, {})),
              ElementsAre(HasSubstr("ring did not reach it (at best 50.00%)")));
  EXPECT_THAT(
      Headlines(Compare(values, {RunOf({}, 4, 2.0), never}, {.target = 0.99})),
      ElementsAre(HasSubstr("Nothing reached 99.00%")));
}

TEST(Headlines, WarnOfAWayThatReachedTheTargetAndEndsFarFromIt) {
  const auto collapses = [](const AxisTexts& at, int epochs, double seconds) {
    RunResult run = RunOf(at, epochs, seconds);
    run.epochs.back().test_accuracy = run.test_accuracy = 0.1;
    return run;
  };
  const auto values = ValuesOf({{"mode", "ps-bsp,ring"}});
  EXPECT_THAT(
      Headlines(Compare(
          values, {collapses({}, 2, 1.0), RunOf({{"mode", "ring"}}, 4, 2.0)},
          {.target = 0.9})),
      ElementsAre("90.00% accuracy is reached first by ps-bsp, after 2.00 s: "
                  "4.00 times faster than ring, but training ends at 10.00% "
                  "with ps-bsp."));
  // Where none keeps it.
  EXPECT_THAT(
      Headlines(Compare(
          values,
          {collapses({}, 2, 1.0), collapses({{"mode", "ring"}}, 4, 2.0)}, {})),
      ElementsAre(HasSubstr(", but training ends at 10.00% with ps-bsp "
                            "and at 10.00% with ring.")));
  EXPECT_THAT(Headlines(ThreeWays()), Not(Contains(HasSubstr("ends at"))));
  // One seed is enough, and so is what is no number.
  RunResult lost = RunOf({{"seed", "1"}}, 2, 1.0);
  lost.test_accuracy = std::nan("");
  EXPECT_THAT(
      Headlines(
          Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
                  {RunOf({}, 2, 1.0), lost, RunOf({{"mode", "ring"}}, 4, 2.0),
                   RunOf({{"mode", "ring"}, {"seed", "1"}}, 4, 2.0)},
                  {.target = 0.9})),
      ElementsAre(HasSubstr(", but training ends at no finite number with a "
                            "seed of ps-bsp.")));
}

TEST(Verdicts, TellOfALossThatEndedAsNoNumberInEveryWay) {
  const auto diverges = [](const AxisTexts& at) {
    RunResult run = RunOf(at, 2, 1.0);
    run.epochs.back().test_loss = run.test_loss = std::nan("");
    return run;
  };
  EXPECT_THAT(
      Verdicts(Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
                       {diverges({}), diverges({{"mode", "ring"}}),
                        RunOf({{"seed", "1"}}, 2, 1.0),
                        RunOf({{"mode", "ring"}, {"seed", "1"}}, 2, 1.0)},
                       {.score = Score::kTestLoss})),
      AllOf(Contains(HasSubstr("A test loss of 1 is reached by ps-bsp, after "
                               "1.00 s, but training ends at no finite number "
                               "with a seed of ps-bsp and at no finite number "
                               "with a seed of ring.")),
            Contains("The final test losses are ps-bsp no finite number with a "
                     "seed and ring no finite number with a seed.")));
}

TEST(Headlines, AWayThatTellsNoAccuracyIsSaidTo) {
  RunResult silent = RunOf({{"mode", "ring"}}, 4, 1.0);
  for (EpochSample& epoch : silent.epochs) {
    epoch.test_accuracy = epoch.test_loss = std::nan("");
  }
  silent.test_accuracy = silent.test_loss = std::nan("");
  EXPECT_THAT(Headlines(Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                                {RunOf({}, 4, 2.0), silent}, {})),
              ElementsAre(HasSubstr("ring tells no accuracy.")));
}

TEST(Headlines, CountSeedsThatFailedAndSeedsThatDidNotArrive) {
  const auto values = ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "3"}});
  EXPECT_THAT(
      Headlines(Compare(values,
                        {RunOf({}, 4, 2.0), RunOf({{"mode", "ring"}}, 4, 1.0),
                         RunOf({{"mode", "ring"}, {"seed", "1"}}, 9, 1.0)},
                        {.target = 0.9},
                        {{At({{"mode", "ring"}, {"seed", "2"}}), "lost", 1}})),
      ElementsAre(HasSubstr("ring failed with 1 of 3 seeds and did not reach "
                            "it with 1 of 3 seeds.")));
}

// Faster, in the seed that survived.
TEST(Headlines, AWayOneOfWhoseSeedsFailedIsNotRanked) {
  const auto compare = [](int epochs) {
    return Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
                   {RunOf({}, 4, 2.0), RunOf({{"seed", "1"}}, 4, 2.2),
                    RunOf({{"mode", "ring"}}, epochs, 1.0)},
                   {.target = 0.9},
                   {{At({{"mode", "ring"}, {"seed", "1"}}), "diverged", 1}});
  };
  EXPECT_THAT(Headlines(compare(4)),
              ElementsAre("90.00% accuracy is reached by ps-bsp, after 8.40 s. "
                          "ring failed with 1 of 2 seeds."));
  EXPECT_THAT(Headlines(compare(9)),
              ElementsAre(HasSubstr("ring failed with 1 of 2 seeds and did not "
                                    "reach it (at best 50.00%).")));
}

// Seed 1 is the slower one, and would make ps-bsp look slower than it is.
TEST(Headlines, WaysAreComparedByTheSeedsThatAllOfThemFinished) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
              {RunOf({}, 4, 2.0), RunOf({{"seed", "1"}}, 4, 6.0),
               RunOf({{"mode", "ring"}}, 4, 2.0)},
              {.target = 0.9});
  EXPECT_THAT(Headlines(comparison),
              ElementsAre(AllOf(HasSubstr("does not differ"),
                                Not(HasSubstr("faster")))));
  EXPECT_THAT(Findings(comparison),
              Contains("Runs are missing, so the ways are compared by the "
                       "seeds that all of them finished: 0."));
  EXPECT_THAT(Findings(ThreeWays()),
              Not(Contains(HasSubstr("Runs are missing"))));
}

TEST(Findings, NameWaysThatHaveLearnedNothing) {
  Comparison comparison = ThreeWays();
  EXPECT_THAT(Findings(comparison), Not(Contains(HasSubstr("learned"))))
      << "first losses are not known";
  // Test losses are 1.
  const auto begin_at = [&](size_t variant, double loss, int64_t step = 1) {
    for (RunResult& run : comparison.variants[variant].runs) {
      run.steps = {{step, 0.1, loss, 1000}};
    }
  };
  begin_at(0, 1.5);
  begin_at(1, 0.9);
  begin_at(2, 0.9, /*step=*/20);
  EXPECT_THAT(Findings(comparison),
              Contains("ps-async has learned nothing: no evaluation had a "
                       "lower loss than the first step. A lower learning rate "
                       "may help."));
  comparison.variants[1].runs[0].epochs[2].test_loss = 0.8;
  EXPECT_THAT(Findings(comparison), Not(Contains(HasSubstr("learned"))));
  begin_at(2, 0.9);
  begin_at(0, 0.9);
  EXPECT_THAT(Findings(comparison),
              Contains(HasSubstr("ps-bsp and ring have learned nothing")));
}

TEST(Findings, TellOfOtherProgramsThatHeldRunsUp) {
  Comparison comparison = ThreeWays();
  EXPECT_THAT(Findings(comparison), Not(Contains(HasSubstr("Other programs"))));
  for (Variant& variant : comparison.variants) {
    for (RunResult& run : variant.runs) run.other_cores = 0.0;
  }
  EXPECT_THAT(Findings(comparison), Not(Contains(HasSubstr("Other programs"))));
  comparison.variants[1].runs[1].other_cores = 1.2;
  EXPECT_THAT(Findings(comparison),
              Contains(AllOf(HasSubstr("up to 1.2 cores busy (during ps-async"),
                             HasSubstr("seed 1"))));
  // The most of all is told.
  comparison.variants[0].runs[0].other_cores = 0.7;
  comparison.variants[2].runs[0].other_cores = 0.9;
  EXPECT_THAT(Findings(comparison),
              Contains(HasSubstr("up to 1.2 cores busy (during ps-async")));
}

TEST(Headlines, ARatioOfRunsThatOtherProgramsHeldUpIsUncertain) {
  const auto headlines = [](double cores, double ring_seconds) {
    RunResult ring = RunOf({{"mode", "ring"}}, 4, ring_seconds);
    ring.other_cores = cores;
    return Headlines(Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                             {RunOf({}, 4, 2.0), ring}, {}));
  };
  EXPECT_THAT(headlines(0.5, 1.0),
              ElementsAre(HasSubstr("2.00 times faster than ps-bsp. Other "
                                    "programs held up some of these runs, so "
                                    "the ratio is uncertain.")));
  EXPECT_THAT(headlines(0.05, 1.0), Not(Contains(HasSubstr("uncertain"))));
  EXPECT_THAT(headlines(0.5, 1.95), Not(Contains(HasSubstr("uncertain"))));
}

TEST(Headlines, RatiosOfWhatAnAxisDoesAreCountedByWay) {
  const std::string slow = "worker:0:x4";
  const auto caution = [&](int ring_epochs) {
    RunResult base = RunOf({}, 4, 2.0);
    base.other_cores = 0.5;
    return Headlines(Compare(ValuesOf({{"mode", "ps-bsp,ring"},
                                       {"slow", "none"},
                                       {"slow", slow}}),
                             {base, RunOf({{"slow", slow}}, 4, 8.0),
                              RunOf({{"mode", "ring"}}, 4, 2.0),
                              RunOf({{"mode", "ring"}, {"slow", slow}},
                                    ring_epochs, 8.0)},
                             {.target = 0.9}))
        .back();
  };
  EXPECT_THAT(caution(4), HasSubstr("so the ratios are uncertain."));
  EXPECT_THAT(caution(9), HasSubstr("so the ratio is uncertain."));
}

TEST(Headlines, AFaultIsBlamedForNothingThatHappensWithoutIt) {
  const std::string slow = "worker:0:x4";
  const auto headline = [&](int without, int with) {
    return Headlines(
               Compare(ValuesOf({{"mode", "ps-bsp,ring"},
                                 {"slow", "none"},
                                 {"slow", slow}}),
                       {RunOf({}, 4, 2.0), RunOf({{"slow", slow}}, 4, 8.0),
                        RunOf({{"mode", "ring"}}, without, 2.0),
                        RunOf({{"mode", "ring"}, {"slow", slow}}, with, 8.0)},
                       {.target = 0.9}))
        .back();
  };
  EXPECT_THAT(headline(4, 4), HasSubstr("ring takes 4.00 times as long"));
  EXPECT_THAT(headline(4, 9),
              AllOf(HasSubstr("ring does not get there with every seed"),
                    Not(HasSubstr("in either case"))));
  EXPECT_THAT(headline(9, 9), HasSubstr("ring does not get there with every "
                                        "seed in either case"));
  EXPECT_THAT(headline(9, 4), HasSubstr("ring gets there with every seed only "
                                        "in this case"));
}

TEST(Headlines, EveryAxisThatVariesHasItsAnswers) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"workers", "1,2"}}),
              {RunOf({{"workers", "1"}}, 4, 4.0), RunOf({}, 4, 2.0),
               RunOf({{"mode", "ring"}, {"workers", "1"}}, 4, 2.5),
               RunOf({{"mode", "ring"}}, 4, 1.0)},
              {});
  EXPECT_THAT(
      Headlines(comparison),
      ElementsAre(
          HasSubstr("1 worker: 90.00% accuracy is reached first by ring"),
          HasSubstr("2 workers: 90.00% accuracy is reached first by ring"),
          "2 workers, against 1 worker: to 90.00% accuracy, ps-bsp takes 0.50 "
          "times as long and ring takes 0.40 times as long."));
  EXPECT_THAT(Questions(comparison),
              ElementsAre(HasSubstr("Which way"), HasSubstr("more workers")));
}

TEST(Headlines, OfOneWayRankTheValuesOfTheAxis) {
  EXPECT_THAT(
      Headlines(Compare(ValuesOf({{"mode", "ps-bsp"}, {"servers", "1,2"}}),
                        {RunOf({}, 4, 2.0), RunOf({{"servers", "2"}}, 4, 1.0)},
                        {})),
      ElementsAre(
          "90.00% accuracy is reached first with 2 servers, after 4.00 s: "
          "2.00 times faster than with 1 server."));
}

TEST(Findings, SplitTheTimeIntoStepsAndTheirPace) {
  EXPECT_THAT(
      Findings(ThreeWays()),
      Contains("Against ps-bsp, ps-async is 2.00 times as fast per step and "
               "needs 1.25 times as many steps; ring is 1.68 times as fast per "
               "step and needs as many steps."));
}

TEST(Findings, TellHowTheWaysEnd) {
  const auto run = [](const AxisTexts& at, double accuracy) {
    RunResult result = RunOf(at, 4, 1.0);
    result.test_accuracy = accuracy;
    return result;
  };
  EXPECT_THAT(
      Findings(Compare(ValuesOf({{"mode", "ring,ps-bsp"}, {"seed", "2"}}),
                       {run({}, 0.95), run({{"seed", "1"}}, 0.97),
                        run({{"mode", "ring"}}, 0.9),
                        run({{"mode", "ring"}, {"seed", "1"}}, 0.9)},
                       {})),
      Contains("The final accuracies are ps-bsp 96.00% (95.00% to 97.00%) and "
               "ring 90.00%."));
}

TEST(Findings, TellHowManyUpdatesAGradientMissed) {
  Comparison comparison = ThreeWays();
  for (Variant& variant : comparison.variants) {
    variant.runs[0].staleness_mean = 0.5;
    variant.runs[0].staleness_max = 7;
    variant.runs[1].staleness_mean = 1.5;
    variant.runs[1].staleness_max = 3;
  }
  const auto findings = Findings(comparison);
  EXPECT_THAT(findings,
              Contains("With ps-async a gradient missed 1.00 updates by other "
                       "workers on average and 7 at worst."));
  // In the synchronous ways none can.
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(),
                          [](const std::string& finding) {
                            return absl::StrContains(finding, "missed");
                          }),
            1);
}

// 1000 parameters: two workers' gradients make a server answer twice 4000
// bytes.
TEST(Findings, TellWhatTheBusiestProcessWouldSend) {
  EXPECT_THAT(Findings(ThreeWays()),
              Contains("Were every process a host of its own, the busiest "
                       "would send 7.8 KiB a step with ps-bsp and 3.9 KiB a "
                       "step with ring."));
  // Not of one by itself.
  EXPECT_THAT(Findings(Compare(ValuesOf({{"mode", "ps-async,ring"}}),
                               {RunOf({{"mode", "ps-async"}}, 4, 1.0),
                                RunOf({{"mode", "ring"}}, 4, 1.0)},
                               {})),
              Not(Contains(HasSubstr("busiest"))));
}

TEST(Findings, ARatioWithinTheScatterIsMarked) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "2"}}),
              {RunOf({}, 4, 1.0), RunOf({{"seed", "1"}}, 4, 3.0),
               RunOf({{"mode", "ring"}}, 4, 1.0),
               RunOf({{"mode", "ring"}, {"seed", "1"}}, 4, 2.0)},
              {});
  EXPECT_THAT(Findings(comparison),
              Contains("Against ps-bsp, ring is 1.33 times as fast (no clear "
                       "difference) per step and needs as many steps."));
}

TEST(Findings, SayWhetherTheTwoSynchronousWaysAgree) {
  Comparison comparison = ThreeWays();
  EXPECT_THAT(Findings(comparison),
              Contains(AllOf(HasSubstr("identical weights"),
                             HasSubstr(" for every seed: "))));
  comparison.cut_short = "5 of 6 runs";
  EXPECT_THAT(
      Findings(comparison),
      Contains(HasSubstr(" for every seed with which they finished: ")));
  comparison.identical_weights = false;
  EXPECT_THAT(Findings(comparison), Contains(HasSubstr("DIFFERENT weights")));
}

TEST(Findings, SayForWhichCompressionTheWeightsWereCompared) {
  const Comparison comparison = Compare(
      ValuesOf({{"mode", "ps-bsp,ring"}, {"compress", "none,topk:0.01,fp16"}}),
      {RunOf({}, 4, 1.0), RunOf({{"mode", "ring"}}, 4, 1.0)}, {});
  EXPECT_THAT(Findings(comparison),
              Contains(HasSubstr("ps-bsp and ring with --compress=none "
                                 "ended with identical weights")));
}

TEST(Findings, NothingIsSaidOfWeightsThatGpusSummed) {
  RunResult on_gpu = RunOf({{"mode", "ring"}}, 4, 1.0);
  on_gpu.on_gpu = true;
  on_gpu.weights_crc32 = 0xdef;
  const Comparison comparison = Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                                        {RunOf({}, 4, 1.0), on_gpu}, {});
  EXPECT_FALSE(comparison.identical_weights.has_value());
}

TEST(Failures, NameTheRunAndSayWhyInOneLine) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ps-async"}}), {RunOf({}, 4, 1.0)}, {},
              {{At({{"mode", "ps-async"}}),
                "worker 0 ended; its last lines:\n  a\n  it diverged\n"}});
  EXPECT_THAT(Failures(comparison),
              ElementsAre("ps-async, 2 workers, 1 server, seed 0: worker 0 "
                          "ended; it diverged"));
}

TEST(Findings, TellHowFarThePredictorIsOff) {
  Comparison comparison = ThreeWays();
  EXPECT_THAT(Findings(comparison), Not(Contains(HasSubstr("psring predict"))));
  const auto predict = [&](size_t variant, double part) {
    for (RunResult& run : comparison.variants[variant].runs) {
      run.predicted_step_s = part * StepSeconds(run);
    }
  };
  predict(0, 1.02);
  EXPECT_THAT(Findings(comparison),
              Contains(HasSubstr("misses the measured step by 2.0%.")));
  predict(2, 0.9);
  EXPECT_THAT(Findings(comparison),
              Contains(HasSubstr("by 6.0% in the median and by 10.0% at most "
                                 "(ring)")));
}

TEST(Verdicts, OneWayIsComparedWithNothing) {
  EXPECT_THAT(
      Verdicts(Compare(ValuesOf({{"mode", "ps-bsp"}}), {RunOf({}, 4, 2)}, {})),
      IsEmpty());
}

TEST(Faults, AreThoseOfTheAxis) {
  EXPECT_THAT(Faults(ThreeWays()), IsEmpty());
  const Comparison slow = Compare(ValuesOf({{"slow", "none"},
                                            {"slow", "worker:1:x3"},
                                            {"link", "worker:0:10mbit"}}),
                                  {}, {});
  EXPECT_THAT(Faults(slow),
              ElementsAre("--slow=worker:1:x3", "--link=worker:0:10mbit"));
}

TEST(SummaryCells, HasAColumnForEachWayAndSaysWhatItLacks) {
  const Cells cells = SummaryCells(ThreeWays());
  EXPECT_THAT(cells[0], ElementsAre("", "ps-bsp", "ps-async", "ring"));
  EXPECT_THAT(cells[1], ElementsAre("images/s", "1,000", "1,000", "1,000"));
  EXPECT_THAT(
      cells[2],
      ElementsAre("time to 90.00% accuracy", "8.40 s\n8.00 s to 8.80 s",
                  "5.25 s\n5.00 s to 5.50 s", "5.00 s\n4.80 s to 5.20 s"));
  EXPECT_THAT(cells,
              Contains(ElementsAre("sent per step, a server", "-", "-", "-")));
}

TEST(SummaryCells, HasTheOtherFigureToo) {
  RunResult run = RunOf({}, 4, 1);
  run.test_loss = 0.25;
  const auto cells = [&](Score score) {
    return SummaryCells(Compare(ValuesOf({}), {run}, {.score = score}));
  };
  EXPECT_THAT(cells(Score::kAccuracy),
              Contains(ElementsAre("test loss", "0.2500")));
  EXPECT_THAT(cells(Score::kTestLoss),
              Contains(ElementsAre("test accuracy", "90.00%")));
  run.test_loss = 3.1279e-5;  // as of a regression
  EXPECT_THAT(cells(Score::kTestLoss),
              Contains(ElementsAre("test loss", "3.13e-05")));
}

// A range of the others would hide it.
TEST(SummaryCells, ASeedThatEndsAsNoNumberLeavesNoRange) {
  std::vector<RunResult> runs;
  for (const double loss : {0.3, 0.4, std::nan("")}) {
    runs.push_back(RunOf({{"seed", absl::StrCat(runs.size())}}, 4, 1));
    runs.back().test_loss = loss;
  }
  runs.push_back(RunOf({{"mode", "ring"}}, 4, 1));
  runs.back().test_loss = 0.5;
  EXPECT_THAT(
      SummaryCells(Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"seed", "3"}}),
                           runs, {})),
      Contains(ElementsAre("test loss", "-", "0.5000")));
}

TEST(SummaryCells, TellsOfGpusMemoryWhereThereIsAny) {
  const auto last = [](const RunResult& run) {
    return SummaryCells(Compare(ValuesOf({}), {run}, {})).back();
  };
  RunResult run = RunOf({}, 4, 1);
  EXPECT_EQ(last(run)[0], "peak memory, a server");
  run.worker_peak_gpu_bytes = int64_t{3} << 30;
  EXPECT_THAT(last(run), ElementsAre("peak GPU memory, a worker", "3.0 GiB"));
}

TEST(SummaryCells, ManyWaysHaveARowEach) {
  const Comparison comparison = Compare(
      ValuesOf({{"mode", "ps-bsp"}, {"workers", "1,2,3,4,5,6"}}),
      {RunOf({{"workers", "1"}}, 4, 1), RunOf({{"workers", "2"}}, 4, 1),
       RunOf({{"workers", "3"}}, 4, 1), RunOf({{"workers", "4"}}, 4, 1),
       RunOf({{"workers", "5"}}, 4, 1), RunOf({{"workers", "6"}}, 4, 1)},
      {});
  const Cells cells = ScreenCells(comparison);
  EXPECT_EQ(cells.size(), 7u);
  EXPECT_EQ(cells[1][0], "1 worker");
  EXPECT_EQ(cells[0][1], "images/s");
}

TEST(ScreenCells, FiveWaysHaveAColumnEach) {
  std::vector<RunResult> runs;
  for (const char* workers : {"1", "2", "3", "4", "5"}) {
    runs.push_back(RunOf({{"workers", workers}}, 4, 1));
  }
  const Comparison comparison = Compare(
      ValuesOf({{"mode", "ps-bsp"}, {"workers", "1,2,3,4,5"}}), runs, {});
  EXPECT_THAT(ScreenCells(comparison)[0],
              ElementsAre("", "1 worker", "2 workers", "3 workers", "4 workers",
                          "5 workers"));
  EXPECT_EQ(SummaryCells(comparison)[0], ScreenCells(comparison)[0]);
}

TEST(TrafficCells, HoldTheWorstRunAgainstTheFormula) {
  Comparison comparison = ThreeWays();
  for (Variant& variant : comparison.variants) {
    for (RunResult& run : variant.runs) {
      run.worker_bytes_per_step = 4096;
      run.worker_peak_bytes = 1 << 20;
    }
  }
  comparison.variants[0].runs[1].worker_bytes_per_step = 6000;
  comparison.variants[0].runs[0].server_bytes_per_step = 8000;
  comparison.variants[0].runs[0].server_peak_bytes = 2 << 20;
  EXPECT_THAT(TrafficCells(comparison),
              ElementsAre(testing::_,
                          ElementsAre("ps-bsp", "worker", "5.9 KiB", "3.9 KiB",
                                      "1.50", "1.0 MiB"),
                          ElementsAre("ps-bsp", "server", "7.8 KiB", "7.8 KiB",
                                      "1.00", "2.0 MiB"),
                          ElementsAre("ps-async", "worker", "4.0 KiB",
                                      "3.9 KiB", "1.02", "1.0 MiB"),
                          ElementsAre("ring", "worker", "4.0 KiB", "3.9 KiB",
                                      "1.02", "1.0 MiB")));
}

TEST(StepTimeCells, AreOfEveryWorkerInMilliseconds) {
  RunResult run = RunOf({{"seed", "5"}}, 4, 1);
  run.step_times[1] = {.compute = 0.0125, .exposed = 0.002, .wait = 0.5};
  EXPECT_THAT(
      StepTimeCells(Compare(ValuesOf({{"seed", "5,6"}}), {run}, {})),
      ElementsAre(testing::_, ElementsAre("ps-bsp", "5", "1", "12.50 ms",
                                          "2.00 ms", "500.00 ms")));
}

// 50 steps in 10 s.
TEST(PredictionCells, TellTheErrorInPercentOfTheMeasuredStep) {
  RunResult run = RunOf({}, 4, 2);
  run.predicted_step_s = 0.19;
  EXPECT_THAT(PredictionCells(Compare(ValuesOf({}), {run}, {})),
              ElementsAre(testing::_, ElementsAre("ps-bsp", "190.00 ms",
                                                  "200.00 ms", "-5.0%")));
}

}  // namespace
}  // namespace psring
