#include "common/page/job_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/page/metrics_text.h"
#include "common/page/page_json.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Time At(double seconds) { return Time() + absl::Seconds(1000 + seconds); }

// A job of one server and `workers` workers, each of which makes ten steps a
// second of 64 samples: 60 ms computing, 40 ms in the exchange.
class FakeJob {
 public:
  explicit FakeJob(int workers) {
    view_.set_state(proto::JobView::RUNNING);
    view_.set_num_servers(1);
    view_.set_num_workers(workers);
    Add(proto::PS, 0);
    for (int w = 0; w < workers; ++w) Add(proto::WORKER, w);
  }

  proto::JobView& view() { return view_; }
  proto::ProcessView& worker(int rank) {
    return *view_.mutable_processes(1 + rank);
  }
  proto::ProcessView& server() { return *view_.mutable_processes(0); }

  // The view after one more second.
  const proto::JobView& Second() {
    ++second_;
    for (proto::ProcessView& p : *view_.mutable_processes()) {
      proto::Figures& f = *p.mutable_figures();
      f.set_resident_bytes(1000);
      f.set_bytes_sent(f.bytes_sent() + 500);
      if (p.process().role() == proto::PS) {
        f.set_updates(f.updates() + 20);
        f.set_staleness_sum(f.staleness_sum() + 30);
        continue;
      }
      p.set_step(p.step() + 10);
      f.set_steps(f.steps() + 10);
      f.set_samples(f.samples() + 640);
      f.set_compute_seconds(f.compute_seconds() + 0.6);
      f.set_exposed_seconds(f.exposed_seconds() + 0.4);
      f.set_loss(2.0 / (1 + second_));
      f.set_sync("bsp");
    }
    return view_;
  }

  // Worker `late` was later than the others by `by` at this second's steps,
  // whose communication took 10 ms.
  void Record(int late, absl::Duration by) {
    for (int w = 0; w + 1 < view_.processes_size(); ++w) {
      auto* records = worker(w).mutable_figures()->mutable_records();
      records->Clear();
      proto::StepRecord& record = *records->Add();
      record.set_step(worker(w).step());
      const int64_t all_here = second_ * 1'000'000'000;
      record.set_arrived_ns(
          w == late ? all_here : all_here - absl::ToInt64Nanoseconds(by));
      record.set_went_on_ns(all_here + 10'000'000);
    }
  }

 private:
  void Add(proto::Role role, int rank) {
    proto::Process& process = *view_.add_processes()->mutable_process();
    process.set_role(role);
    process.set_rank(rank);
    process.set_host("h");
    process.set_pid((role == proto::PS ? 50 : 100) + rank);
  }

  proto::JobView view_;
  int64_t second_ = 0;
};

// What fast workers of ssp and async wait before an evaluation.
TEST(JobState, TimeUntilOthersHaveMadeTheirStepsIsWaiting) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 10; ++i) {
    job.Second();
    job.worker(0).mutable_figures()->set_catch_up_seconds(0.3 * i);
    state.Take(At(i), job.view());
  }
  EXPECT_NEAR(state.now()->waiting_s, 0.015, 1e-6);
  EXPECT_NEAR(state.now()->exposed_s, 0.04 - 0.015, 1e-6);
}

TEST(JobState, RatesAndStepTimesComeFromWhatHasBeenCounted) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 10; ++i) state.Take(At(i), job.Second());
  const JobPoint& now = *state.now();
  EXPECT_EQ(now.step, 100);
  EXPECT_NEAR(now.samples_per_second, 2 * 640, 1);
  EXPECT_NEAR(now.steps_per_second, 10, 0.1);
  EXPECT_NEAR(now.compute_s, 0.06, 1e-6);
  EXPECT_NEAR(now.exposed_s, 0.04, 1e-6);
  EXPECT_NEAR(now.staleness, 1.5, 1e-6);
  EXPECT_NEAR(now.sent_per_second, 3 * 500, 1);
  EXPECT_EQ(now.resident_bytes, 3000);
  EXPECT_NEAR(*now.loss, 2.0 / 11, 1e-9);
  EXPECT_FALSE(state.points().front().paced);
  EXPECT_EQ(state.points().size(), 10u);
  EXPECT_EQ(state.points().back().seconds, 9);
}

// A script may prepare for minutes, and its first step computes nothing.
TEST(JobState, WhatLiesBeforeTheFirstStepIsNoStepsTime) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 60; ++i) state.Take(At(i), job.view());
  EXPECT_FALSE(state.now()->paced);
  for (int i = 60; i < 64; ++i) state.Take(At(i), job.Second());
  EXPECT_NEAR(state.now()->samples_per_second, 2 * 640, 1);
}

TEST(JobState, AWorkerWhosePaceIsNotKnownYetIsNoPartOfTheMean) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 10; ++i) {
    job.Second();
    job.worker(1).mutable_figures()->Clear();
    state.Take(At(i), job.view());
  }
  EXPECT_NEAR(state.now()->compute_s, 0.06, 1e-6);
  EXPECT_NEAR(state.now()->steps_per_second, 10, 0.1);
}

// Heartbeats come between two steps that take longer than they do.
TEST(JobState, StepsThatTakeManySecondsHaveASteadyPace) {
  FakeJob job(1);
  JobState state;
  int64_t steps = 0;
  for (int i = 0; i < 60; ++i) {
    if (i % 5 == 0) {
      ++steps;
      proto::Figures& f = *job.worker(0).mutable_figures();
      f.set_steps(steps);
      f.set_samples(steps * 100);
      f.set_compute_seconds(static_cast<double>(steps) * 5);
    }
    state.Take(At(i), job.view());
    if (i < 20) continue;
    EXPECT_NEAR(state.now()->samples_per_second, 20, 1) << i;
    EXPECT_NEAR(state.now()->compute_s, 5, 0.1) << i;
  }
  for (int i = 60; i < 160; ++i) state.Take(At(i), job.view());
  EXPECT_LT(state.now()->samples_per_second, 3);  // it has stopped
}

TEST(JobState, TheStragglerIsWhoTheOthersWaitedFor) {
  FakeJob job(3);
  JobState state;
  for (int i = 0; i < 10; ++i) {
    job.Second();
    job.Record(/*late=*/1, absl::Milliseconds(30));
    state.Take(At(i), job.view());
  }
  EXPECT_EQ(state.straggler().who, "worker 1 (host h, pid 101)");
  EXPECT_NEAR(state.straggler().share, 1, 0.01);
  // Two of three waited 30 of 40 ms, the last one for nobody.
  EXPECT_NEAR(state.now()->waiting_s, 0.04 * 60 / 90, 1e-3);
  EXPECT_NEAR(state.now()->exposed_s, 0.04 * 30 / 90, 1e-3);
}

// Steps of which nobody knows how long they take.
TEST(JobState, WithoutAPaceNobodyIsAStraggler) {
  FakeJob job(3);
  JobState state;
  for (int i = 0; i < 10; ++i) {
    job.Second();
    job.Record(/*late=*/1, absl::Milliseconds(1));
    for (int w = 0; w < 3; ++w) job.worker(w).mutable_figures()->set_steps(1);
    state.Take(At(i), job.view());
  }
  EXPECT_FALSE(state.now()->paced);
  EXPECT_EQ(state.straggler().who, "");
}

// Of ssp's steps some are told, as of all, with those that they wait for.
TEST(JobState, InSspTheStragglerIsWhoseStepsBeforeWereWaitedFor) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 10; ++i) {
    job.Second();
    const int64_t late = (i + 1) * 1'000'000'000LL, step = 16 * (i + 1);
    for (int w = 0; w < 2; ++w) {
      proto::Figures& figures = *job.worker(w).mutable_figures();
      figures.set_sync("ssp");
      figures.set_staleness_bound(3);
      figures.clear_records();
      // Worker 0 is three steps ahead and waits 30 ms for worker 1, which goes
      // on at once, as it does in its steps later.
      const auto add = [&](int64_t number, int64_t arrived, int64_t went_on) {
        proto::StepRecord& record = *figures.add_records();
        record.set_step(number);
        record.set_arrived_ns(arrived);
        record.set_went_on_ns(went_on);
      };
      add(step - 3, late - (w == 0 ? 300'000'000 : 0),
          late + (w == 0 ? -200'000'000 : 10'000'000));
      add(step, late + (w == 0 ? -30'000'000 : 300'000'000),
          late + (w == 0 ? 10'000'000 : 310'000'000));
    }
    state.Take(At(i), job.view());
  }
  EXPECT_EQ(state.sync(), "ssp:3");
  EXPECT_EQ(state.straggler().who, "worker 1 (host h, pid 101)");
  // 30 of the 50 ms of both workers' told steps; the steps before explain none.
  EXPECT_NEAR(state.now()->waiting_s, 0.04 * 30 / 50, 1e-3);
}

TEST(JobState, WhereEverybodyIsLateInTurnNobodyIsAStraggler) {
  FakeJob job(3);
  JobState state;
  for (int i = 0; i < 12; ++i) {
    job.Second();
    job.Record(/*late=*/i % 3, absl::Milliseconds(30));
    state.Take(At(i), job.view());
  }
  EXPECT_EQ(state.straggler().who, "");
  EXPECT_GT(state.now()->waiting_s, 0.02);
}

TEST(JobState, CurvesAreThinnedOutAndKeepTheirCourse) {
  FakeJob job(1);
  JobState state;
  const int seconds = 10 * static_cast<int>(JobState::kMaxPoints);
  for (int i = 0; i < seconds; ++i) {
    proto::Figures& figures = *job.worker(0).mutable_figures();
    figures.set_evaluations(i + 1);
    figures.set_accuracy(0.5);
    state.Take(At(i), job.Second());
    ASSERT_LT(state.points().size(), JobState::kMaxPoints);
    ASSERT_LT(state.evaluations().size(), JobState::kMaxEvaluations);
  }
  EXPECT_GT(state.thinned(), 3);
  EXPECT_GE(state.points().size(), JobState::kMaxPoints / 2 - 1);
  EXPECT_LT(state.points().front().seconds, 32);
  EXPECT_GT(state.points().back().seconds, seconds - 40);
  for (size_t i = 1; i < state.points().size(); ++i) {
    EXPECT_GT(state.points()[i].seconds, state.points()[i - 1].seconds);
    EXPECT_LT(*state.points()[i].loss, *state.points()[i - 1].loss);
  }
}

std::vector<std::string> FaultsOf(const JobState& state) {
  std::vector<std::string> faults;
  for (const JobMark& mark : state.marks()) {
    if (mark.fault) faults.push_back(mark.text);
  }
  return faults;
}

TEST(JobState, MarksWhatHappenedOnce) {
  FakeJob job(2);
  JobState state;
  job.view().set_state(proto::JobView::FORMING);
  state.Take(At(0), job.view());
  EXPECT_TRUE(state.marks().empty());
  job.view().set_state(proto::JobView::RUNNING);
  state.Take(At(1), job.Second());
  ASSERT_EQ(state.marks().size(), 1u);
  EXPECT_EQ(state.marks()[0].text, "all processes have joined");
  for (int i = 2; i < 6; ++i) {
    job.worker(0).set_waits_at("a step");
    job.worker(0).set_held_up_by("worker 1");
    job.worker(1).set_silent_ms(1000 * i);
    state.Take(At(i), job.Second());
  }
  job.view().set_state(proto::JobView::OVER);
  job.view().set_result("lost worker 1");
  for (int i = 6; i < 9; ++i) state.Take(At(i), job.view());
  EXPECT_THAT(
      FaultsOf(state),
      ElementsAre("worker 0 (host h, pid 100) waits at a step for worker 1",
                  "worker 1 (host h, pid 101) has not been heard for 3 s",
                  "the job has failed: lost worker 1"));
  EXPECT_EQ(state.seconds(), 5);
}

TEST(JobState, ALossThatIsNotFiniteIsShownAndMarkedOnce) {
  FakeJob job(2);
  JobState state;
  for (int i = 0; i < 3; ++i) state.Take(At(i), job.Second());
  EXPECT_TRUE(FaultsOf(state).empty());
  for (int i = 3; i < 6; ++i) {
    job.Second();
    job.worker(1).mutable_figures()->set_loss(-std::nan(""));
    state.Take(At(i), job.view());
  }
  EXPECT_TRUE(std::isnan(*state.now()->loss));
  EXPECT_THAT(
      FaultsOf(state),
      ElementsAre("the loss of worker 1 (host h, pid 101) is not finite"));
  Seen seen;
  const auto page = nlohmann::json::parse(ToJson(state, {}, seen));
  EXPECT_TRUE(page["now"]["loss"].is_null());
  EXPECT_EQ(page["now"]["not_finite"].dump(), R"(["loss"])");
  EXPECT_THAT(MetricsText(state),
              HasSubstr("psring_loss{role=\"worker\",rank=\"1\"} NaN\n"));
}

// Every rank of a script may log it, each in its own time.
TEST(JobState, AnEvaluationThatSeveralWorkersTellOfIsOne) {
  FakeJob job(2);
  JobState state;
  state.Take(At(0), job.Second());
  const auto tell = [&](int second, int rank, int number) {
    job.Second();
    job.worker(rank).mutable_figures()->set_evaluations(number);
    job.worker(rank).mutable_figures()->set_accuracy(0.1 * number);
    state.Take(At(second), job.view());
  };
  for (int number = 1; number <= 3; ++number) {
    tell(2 * number, 0, number);
    tell(2 * number + 1, 1, number);
    EXPECT_EQ(state.evaluations().size(), static_cast<size_t>(number));
  }
  tell(8, 0, 4);
  job.worker(0).set_left(true);
  tell(9, 1, 4);
  EXPECT_EQ(state.evaluations().size(), 4u);
  tell(10, 1, 5);
  ASSERT_EQ(state.evaluations().size(), 5u);
  EXPECT_EQ(state.evaluations()[4].seconds, 10);
}

// What workers say when they leave is of the last step.
TEST(JobState, TheEndHasTheLastFigures) {
  FakeJob job(1);
  JobState state;
  for (int i = 0; i < 10; ++i) state.Take(At(i), job.Second());
  job.view().set_state(proto::JobView::OVER);
  job.worker(0).set_left(true);
  job.worker(0).set_step(107);
  job.worker(0).mutable_figures()->set_loss(0.125);
  job.worker(0).mutable_figures()->set_evaluations(1);
  job.worker(0).mutable_figures()->set_accuracy(0.75);
  state.Take(At(10), job.view());
  EXPECT_EQ(state.now()->step, 107);
  EXPECT_EQ(state.now()->loss, 0.125);
  EXPECT_NEAR(state.now()->steps_per_second, 10, 0.1);
  ASSERT_EQ(state.evaluations().size(), 1u);
  EXPECT_EQ(state.evaluations()[0].accuracy, 0.75);
}

// As under `psring run`.
TEST(JobState, AServerThatIsAWorkersThreadsHasNoMemoryOfItsOwn) {
  FakeJob job(2);
  JobState state;
  job.server().mutable_process()->set_pid(101);
  for (int i = 0; i < 3; ++i) state.Take(At(i), job.Second());
  EXPECT_EQ(state.now()->resident_bytes, 2000);
}

TEST(JobState, AJobThatHasNotBegunHasNoMode) {
  JobState state;
  state.Take(At(0), proto::JobView());
  EXPECT_THAT(MetricsText(state), Not(HasSubstr("psring_job_info")));
}

TEST(JobState, MarksAreBounded) {
  FakeJob job(1);
  JobState state;
  for (int i = 0; i < 3000; ++i) {
    job.worker(0).set_silent_ms(i % 2 == 0 ? 0 : 3000);
    state.Take(At(i), job.Second());
  }
  EXPECT_EQ(state.marks().size(), JobState::kMaxMarks);
}

// Whoever poses as a coordinator says what it likes to `psring top`.
TEST(JobState, RanksThatAreNoneAreNotUsed) {
  for (const int rank : {-1, 1 << 30}) {
    FakeJob job(1);
    JobState state;
    state.Take(At(0), job.Second());
    job.worker(0).mutable_process()->set_rank(rank);
    state.Take(At(1), job.Second());
    Seen seen;
    EXPECT_FALSE(ToJson(state, {}, seen).empty());
  }
}

// Sums and differences of them would overflow, and texts fill the page.
TEST(JobState, NumbersAndTextsOfAViewAreBounded) {
  FakeJob job(2);
  JobState state;
  state.Take(At(0), job.Second());
  for (const int64_t number : {INT64_MIN, INT64_MAX}) {
    job.view().set_num_servers(static_cast<int>(number >> 32));
    job.view().set_num_workers(static_cast<int>(number >> 32));
    for (int w = 0; w < 2; ++w) {
      proto::Figures& figures = *job.worker(w).mutable_figures();
      figures.set_steps(number);
      figures.set_bytes_sent(number);
      figures.set_staleness_bound(~number);
      proto::StepRecord& record = *figures.add_records();
      record.set_step(number);
      record.set_arrived_ns(~number);
      record.set_went_on_ns(number);
    }
    for (int i = 0; i < 8; ++i) state.Take(At(10 * i), job.view());
  }
  job.worker(0).mutable_process()->set_host(std::string(1 << 20, 'h'));
  job.worker(0).set_doing(std::string(1 << 20, 'd'));
  state.Take(At(100), job.view());
  Seen seen;
  EXPECT_LT(ToJson(state, {}, seen).size(), 1u << 16);
}

// What a reader of the events ends up with.
struct Reader {
  Seen seen;
  std::vector<nlohmann::json> points;
  size_t bytes = 0;

  nlohmann::json Read(const JobState& state) {
    const std::string text = ToJson(state, {}, seen);
    bytes += text.size();
    auto job = nlohmann::json::parse(text);
    points.resize(job["curves"]["first_point"].get<size_t>());
    for (const auto& p : job["curves"]["points"]) points.push_back(p);
    return job;
  }
};

TEST(PageJson, AJobOfManyDaysTellsItsSeconds) {
  FakeJob job(1);
  JobState state;
  state.Take(At(0), job.view());
  state.Take(At(1000003), job.view());
  Seen seen;
  EXPECT_EQ(nlohmann::json::parse(ToJson(state, {}, seen))["seconds"], 1000003);
  EXPECT_TRUE(
      absl::StrContains(MetricsText(state), "psring_job_seconds 1000003\n"));
}

TEST(PageJson, AReaderGetsEveryPointOnceAndAllAfterTheyAreThinned) {
  FakeJob job(1);
  JobState state;
  Reader reader;
  nlohmann::json last;
  for (int i = 0; i < 2 * static_cast<int>(JobState::kMaxPoints); ++i) {
    state.Take(At(i), job.Second());
    last = reader.Read(state);
    ASSERT_EQ(reader.points.size(), state.points().size());
  }
  Reader late;
  late.Read(state);
  EXPECT_EQ(late.points, reader.points);
  EXPECT_LT(reader.bytes, 5'000'000u);
  EXPECT_EQ(last["processes"][1]["role"], "worker");
  EXPECT_EQ(last["processes"][1]["state"], "waits");
  EXPECT_EQ(last["state"], "running");
  EXPECT_NEAR(last["now"]["samples_per_second"].get<double>(), 640, 1);
}

TEST(PageJson, TextsOfPeersAreOnlyText) {
  FakeJob job(1);
  JobState state;
  job.worker(0).mutable_figures()->set_last_word(
      "</script><b>\"\xff\xe2\x80\xa8");
  state.Take(At(0), job.Second());
  Seen seen;
  const std::string text = ToJson(state, {}, seen);
  EXPECT_TRUE(nlohmann::json::accept(text));
  for (const char c : text) EXPECT_EQ(c & 0x80, 0);
}

}  // namespace
}  // namespace psring
