#include "common/trace/metrics_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace psring {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr char kStart[] =
    R"({"event":"start","time":1,"role":"worker","rank":0,"host":"h","pid":1,)"
    R"("mode":"ps","sync":"bsp","device":"cuda","num_parameters":21840,"total_steps":375,)"
    R"("steps_per_epoch":125,"global_batch":128})";
constexpr char kStep[] =
    R"({"event":"step","step":10,"seconds":1.5,"loss":2.1,)"
    R"("images_per_second":4000.0})";
constexpr char kEpoch[] =
    R"({"event":"epoch","epoch":1,"step":125,"seconds":2.0,"train_loss":0.5,)"
    R"("test_loss":0.3,"test_accuracy":0.91,"images_per_second":8000})";
constexpr char kEnd[] =
    R"({"event":"end","step":375,"seconds":6.1,"bytes_sent":123,)"
    R"("bytes_received":124,"peak_memory_bytes":125,"staleness_mean":0.5,)"
    R"("staleness_max":3,"staleness_histogram":{"0":[5,1],"1":[4,2]},)"
    R"("step_seconds":{"compute":0.1,"exposed":0.2,"wait":0.3,"busy":[0.3,0.5]}})";

class MetricsReaderTest : public testing::Test {
 protected:
  MetricsReaderTest() { std::filesystem::remove(path_); }

  void Append(const std::string& text) {
    std::ofstream(path_, std::ios::app) << text << std::flush;
  }

  const std::string path_ = testing::TempDir() + "/worker-0.jsonl";
  MetricsReader reader_{path_};
};

TEST_F(MetricsReaderTest, AFileThatIsNotThereYetIsNoError) {
  EXPECT_TRUE(reader_.Read().ok());
  EXPECT_EQ(reader_.metrics().role, "");
}

// The script has paused after step 25.
TEST_F(MetricsReaderTest, TakesWhenStepsWereMade) {
  for (
      const char* line :
      {R"({"event":"progress","step":0,"seconds":1.0,"last_step_seconds":0})",
       R"({"event":"progress","step":25,"seconds":9.0,"last_step_seconds":7})"}) {
    Append(std::string(line) + "\n");
  }
  ASSERT_TRUE(reader_.Read().ok());
  const std::vector<StepSample>& progress = reader_.metrics().progress;
  ASSERT_THAT(progress, SizeIs(3));
  EXPECT_EQ(progress[0].step, 0);
  EXPECT_EQ(progress[1].step, 24);
  EXPECT_EQ(progress[1].seconds, 2);
  EXPECT_EQ(progress[2].step, 25);
  EXPECT_EQ(progress[2].seconds, 9);
}

// As a script that tells its loss and its accuracy in calls of their own.
TEST_F(MetricsReaderTest, LinesOfOneEvaluationAreOne) {
  const auto epoch = [&](int number, const std::string& figures) {
    Append(R"({"event":"epoch","epoch":)" + std::to_string(number) +
           R"(,"step":9,"seconds":2.0,"train_loss":null,)" + figures +
           R"(,"images_per_second":null})" + "\n");
    EXPECT_TRUE(reader_.Read().ok());
  };
  epoch(1, R"("test_loss":2.0,"test_accuracy":null)");
  epoch(1, R"("test_loss":null,"test_accuracy":0.5)");
  ASSERT_THAT(reader_.metrics().epochs, SizeIs(1));
  EXPECT_EQ(reader_.metrics().epochs[0].test_loss, 2);
  EXPECT_EQ(reader_.metrics().epochs[0].test_accuracy, 0.5);
  EXPECT_FALSE(reader_.metrics().infinite_loss);
  epoch(2,
        R"("not_finite":["test_loss"],"test_loss":null,"test_accuracy":null)");
  epoch(2, R"("test_loss":null,"test_accuracy":0.1)");
  ASSERT_THAT(reader_.metrics().epochs, SizeIs(2));
  EXPECT_TRUE(std::isnan(reader_.metrics().epochs[1].test_loss));
  EXPECT_TRUE(reader_.metrics().infinite_loss);
  epoch(3, R"("test_loss":1.0,"test_accuracy":null)");
  EXPECT_FALSE(reader_.metrics().infinite_loss);
}

TEST_F(MetricsReaderTest, TakesInEveryEvent) {
  for (const char* line : {kStart, kStep, kEpoch, kEnd}) {
    Append(std::string(line) + "\n");
  }
  ASSERT_TRUE(reader_.Read().ok());
  const ProcessMetrics& metrics = reader_.metrics();
  EXPECT_EQ(metrics.role, "worker");
  EXPECT_EQ(metrics.num_parameters, 21840);
  EXPECT_EQ(metrics.total_steps, 375);
  EXPECT_EQ(metrics.steps_per_epoch, 125);
  EXPECT_EQ(metrics.global_batch, 128);
  EXPECT_TRUE(metrics.on_gpu);
  ASSERT_THAT(metrics.steps, SizeIs(1));
  EXPECT_EQ(metrics.steps[0].step, 10);
  EXPECT_EQ(metrics.steps[0].loss, 2.1);
  ASSERT_THAT(metrics.epochs, SizeIs(1));
  EXPECT_EQ(metrics.epochs[0].test_accuracy, 0.91);
  ASSERT_TRUE(metrics.end);
  EXPECT_EQ(metrics.end->bytes_sent, 123);
  EXPECT_EQ(metrics.end->peak_memory_bytes, 125);
  EXPECT_EQ(metrics.end->staleness_max, 3);
  EXPECT_EQ(metrics.end->staleness_histogram.at(1),
            (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(metrics.end->step_time->wait, 0.3);
  EXPECT_EQ(metrics.end->weights_crc32, std::nullopt);
  EXPECT_EQ(metrics.end->peak_gpu_memory_bytes, std::nullopt);
  EXPECT_EQ(metrics.started_s, 1);
}

// The model's lies outside of what libtorch holds.
TEST_F(MetricsReaderTest, KnowsAGpusMemoryWhereLibtorchTells) {
  const auto peak = [&](const std::string& memory) {
    std::string end = kEnd;
    end.insert(end.size() - 1, R"(,"gpu_memory_bytes":)" + memory);
    std::ofstream(path_) << end << std::endl;
    MetricsReader reader(path_);
    EXPECT_TRUE(reader.Read().ok());
    return reader.metrics().end->peak_gpu_memory_bytes;
  };
  EXPECT_EQ(peak(R"({"model":64,"peak_reserved":4096})"), 4160);
  EXPECT_EQ(peak(R"({"peak_reserved":4096})"), 4096);
  EXPECT_EQ(peak(R"({"model":64})"), std::nullopt);
  EXPECT_EQ(peak("null"), std::nullopt);
}

TEST_F(MetricsReaderTest, AHalfWrittenLineWaitsForItsRest) {
  const std::string step = kStep;
  Append(std::string(kStart) + "\n" + step.substr(0, 20));
  ASSERT_TRUE(reader_.Read().ok());
  EXPECT_THAT(reader_.metrics().steps, SizeIs(0));
  Append(step.substr(20));
  ASSERT_TRUE(reader_.Read().ok());
  EXPECT_THAT(reader_.metrics().steps, SizeIs(0));
  Append("\n" + step + "\n");
  ASSERT_TRUE(reader_.Read().ok());
  EXPECT_THAT(reader_.metrics().steps, SizeIs(2));
  ASSERT_TRUE(reader_.Read().ok());
  EXPECT_THAT(reader_.metrics().steps, SizeIs(2));
}

TEST_F(MetricsReaderTest, NullIsANumberThatIsNotFinite) {
  Append(R"({"event":"step","step":1,"seconds":1,"loss":null,)"
         R"("images_per_second":1})"
         "\n");
  ASSERT_TRUE(reader_.Read().ok());
  EXPECT_TRUE(std::isnan(reader_.metrics().steps[0].loss));
}

TEST_F(MetricsReaderTest, AnUnknownEventIsLeftAlone) {
  Append("{\"event\":\"straggler\",\"step\":3}\n");
  EXPECT_TRUE(reader_.Read().ok());
}

TEST_F(MetricsReaderTest, AWrongLineIsNamedWithItsNumber) {
  Append(std::string(kStart) + "\n{\"event\":\"step\"}\n");
  const absl::Status s = reader_.Read();
  EXPECT_EQ(s.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(s.message()), HasSubstr("worker-0.jsonl:2:"));
}

TEST(ReadAllMetrics, ReadsEveryProcesssFile) {
  const std::string dir = testing::TempDir() + "/all";
  std::filesystem::create_directory(dir);
  std::ofstream(dir + "/worker-0.jsonl") << kStart << "\n";
  std::ofstream(dir + "/ps-0.jsonl") << kEnd << "\n";
  std::ofstream(dir + "/notes.txt") << "not metrics\n";
  const auto all = ReadAllMetrics(dir);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, SizeIs(2));
}

TEST(ReadAllMetrics, AMissingFolderIsNamed) {
  const auto all = ReadAllMetrics("/no/such/folder");
  EXPECT_THAT(std::string(all.status().message()),
              HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace psring
