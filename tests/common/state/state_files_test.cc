#include "common/state/state_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/testing/tensor_lists.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::Tensor;
using testing::TensorList;
using testing::TestDirectory;
using testing::WriteFile;
using Floats = std::vector<float>;
using Slots = std::vector<std::string>;

const TensorList& SmallModel() {
  static const auto* list =
      new TensorList{Tensor("conv.weight", {5, 2, 3}), Tensor("empty", {0, 4}),
                     Tensor("scale", {}), Tensor("fc.weight", {7, 9})};
  return *list;
}

// A model's state: values everywhere but in the gaps between tensors.
struct State {
  explicit State(const TensorList& tensors, Slots names = {"m", "v"})
      : layout(*Layout::Create(tensors, 100)),
        slot_names(std::move(names)),
        parameters(layout.num_elements(), 0),
        slots(slot_names.size(), parameters) {}

  void Fill() {
    float next = 1;
    for (size_t i = 0; i < layout.tensors().size(); ++i) {
      const Range range = layout.tensor(i);
      for (int64_t e = range.begin; e < range.end; ++e) {
        parameters[e] = next++;
        for (Floats& slot : slots) slot[e] = next++;
      }
    }
  }

  absl::Status LayOut(const std::string& directory,
                      const std::vector<ExtraTensor>& extras = {}) const {
    return LayOutStateFiles(directory, layout, slot_names, extras).status();
  }

  // Without its edges.
  absl::StatusOr<proto::SavedState> WriteBlocks(const std::string& directory,
                                                Range range) const {
    std::vector<const float*> pointers;
    for (const Floats& slot : slots) {
      pointers.push_back(slot.data() + range.begin);
    }
    return WriteStateRange(directory, layout, slot_names, range,
                           parameters.data() + range.begin, pointers);
  }

  absl::Status Write(const std::string& directory, Range range) const {
    const auto saved = WriteBlocks(directory, range);
    return saved.ok() ? WriteEdges(directory, *saved) : saved.status();
  }

  absl::Status WriteAll(const std::string& directory) const {
    return Write(directory, {0, layout.num_elements()});
  }

  absl::Status Read(const std::string& directory,
                    std::vector<ExtraTensor>* extras = nullptr) {
    std::vector<float*> pointers;
    for (Floats& slot : slots) pointers.push_back(slot.data());
    std::vector<ExtraTensor> ignored;
    return ReadStateFiles(directory, layout, slot_names, parameters.data(),
                          pointers, extras ? extras : &ignored);
  }

  Layout layout;
  Slots slot_names;
  Floats parameters;
  std::vector<Floats> slots;
};

std::vector<ExtraTensor> SomeExtras() {
  return {
      {"norm.running_mean", "F32", {2}, std::string("\0\0\x80\x3f\0\0\0\0", 8)},
      {"norm.num_batches_tracked",
       "I64",
       {},
       std::string("\5\0\0\0\0\0\0\0", 8)}};
}

// A directory with the small model's state in it.
std::string WrittenDirectory() {
  const std::string directory = TestDirectory();
  State state(SmallModel());
  state.Fill();
  EXPECT_TRUE(state.LayOut(directory, SomeExtras()).ok());
  EXPECT_TRUE(state.WriteAll(directory).ok());
  return directory;
}

TEST(StateFilesTest, ReadsWhatWasWritten) {
  const std::string directory = WrittenDirectory();
  State written(SmallModel()), read(SmallModel());
  written.Fill();
  std::vector<ExtraTensor> extras;
  const absl::Status status = read.Read(directory, &extras);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(read.parameters, written.parameters);
  EXPECT_EQ(read.slots, written.slots);
  ASSERT_EQ(extras.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(extras[i].name, SomeExtras()[i].name);
    EXPECT_EQ(extras[i].dtype, SomeExtras()[i].dtype);
    EXPECT_EQ(extras[i].shape, SomeExtras()[i].shape);
    EXPECT_EQ(extras[i].bytes, SomeExtras()[i].bytes);
  }
}

TEST(StateFilesTest, OptimizerWithoutSlotsHasAFileWithoutTensors) {
  const std::string directory = TestDirectory();
  State state(SmallModel(), {});
  EXPECT_TRUE(state.LayOut(directory).ok());
  EXPECT_TRUE(state.WriteAll(directory).ok());
  EXPECT_TRUE(state.Read(directory).ok());
}

// The blocks of a file that differ.
std::set<int64_t> ChangedBlocks(const std::string& before,
                                const std::string& after) {
  std::set<int64_t> blocks;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i]) blocks.insert(i / kBlockBytes);
  }
  return blocks;
}

// Hosts that share a network file system would lose one of two writers' bytes.
TEST(StateFilesTest, NoTwoProcessesWriteInOneBlock) {
  State state(
      {Tensor("a", {50000}), Tensor("b", {300, 333}), Tensor("c", {7})});
  state.Fill();
  const std::string expected = TestDirectory(), directory = TestDirectory("2");
  ASSERT_TRUE(state.LayOut(expected).ok());
  ASSERT_TRUE(state.WriteAll(expected).ok());
  ASSERT_TRUE(state.LayOut(directory).ok());
  const int64_t size = state.layout.num_elements();
  proto::SavedState all;
  for (const char* name : {kModelFile, kOptimizerFile}) {
    std::set<int64_t> written;
    for (int writer = 0; writer < 3; ++writer) {
      const std::string path = directory + "/" + name;
      const std::string before = ReadFile(path);
      const auto saved =
          state.WriteBlocks(directory, NearEqualPart({0, size}, 3, writer));
      ASSERT_TRUE(saved.ok()) << saved.status();
      all.MergeFrom(*saved);
      const std::set<int64_t> mine = ChangedBlocks(before, ReadFile(path));
      EXPECT_FALSE(mine.empty());
      for (const int64_t block : mine) {
        EXPECT_TRUE(written.insert(block).second) << name << " " << block;
      }
    }
    // Nor does the one that writes the edges.
    for (const proto::SavedState::Edge& edge : all.edges()) {
      if (edge.file() != name) continue;
      const auto size_bytes = static_cast<int64_t>(edge.data().size());
      for (int64_t block = edge.begin() / kBlockBytes;
           block * kBlockBytes < edge.begin() + size_bytes; ++block) {
        EXPECT_FALSE(written.contains(block)) << name << " " << block;
      }
    }
    ASSERT_TRUE(WriteEdges(directory, all).ok());
    EXPECT_EQ(ReadFile(directory + "/" + name),
              ReadFile(expected + "/" + name));
    ASSERT_TRUE(state.LayOut(directory).ok());
  }
}

TEST(StateFilesTest, AnEdgeOutsideOfTheFileIsRefused) {
  const std::string directory = WrittenDirectory();
  const auto size = static_cast<int64_t>(
      std::filesystem::file_size(directory + "/" + kModelFile));
  for (const int64_t begin : {int64_t{-1}, size, int64_t{1} << 40}) {
    proto::SavedState saved;
    saved.add_edges()->set_file(kModelFile);
    saved.mutable_edges(0)->set_begin(begin);
    saved.mutable_edges(0)->set_data("x");
    EXPECT_THAT(std::string(WriteEdges(directory, saved).message()),
                HasSubstr("outside of it"));
  }
}

TEST(StateFilesTest, FilesAreTheSameWhoeverWritesWhichRanges) {
  const std::string expected = WrittenDirectory();
  State state(SmallModel());
  state.Fill();
  std::mt19937 random(1);
  const int64_t size = state.layout.num_elements();
  for (int round = 0; round < 5; ++round) {
    const std::string directory = TestDirectory("2");
    ASSERT_TRUE(state.LayOut(directory, SomeExtras()).ok());
    std::vector<Range> ranges;
    for (int64_t begin = 0; begin < size;) {
      const int64_t end = std::min<int64_t>(size, begin + random() % 30);
      ranges.push_back({begin, end});
      begin = end;
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    for (const Range& range : ranges) {
      ASSERT_TRUE(state.Write(directory, range).ok());
    }
    for (const char* name : {kModelFile, kOptimizerFile}) {
      EXPECT_EQ(ReadFile(directory + "/" + name),
                ReadFile(expected + "/" + name));
    }
  }
}

TEST(StateFilesTest, DataBeginsAlignedAndHasNoGaps) {
  const std::string bytes = ReadFile(WrittenDirectory() + "/" + kModelFile);
  const int64_t parameters = 5 * 2 * 3 + 0 + 1 + 7 * 9;
  EXPECT_EQ((bytes.size() - parameters * 4 - 16) % 64, 0u);
}

TEST(StateFilesTest, FlippedBytesNeverCrash) {
  const std::string directory = WrittenDirectory();
  std::mt19937 random(2);
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const std::string path = directory + "/" + name;
    const std::string bytes = ReadFile(path);
    const size_t header = bytes.rfind("}") + 1;
    for (int round = 0; round < 1000; ++round) {
      std::string flipped = bytes;
      flipped[random() % header] ^= 1 << random() % 8;
      WriteFile(path, flipped);
      State state(SmallModel());
      const absl::Status status = state.Read(directory);
      EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), path))
          << status;
    }
    WriteFile(path, bytes);
  }
}

TEST(StateFilesTest, EveryTruncationIsAnErrorThatNamesTheFile) {
  const std::string directory = WrittenDirectory();
  const std::string path = directory + "/" + kModelFile;
  const std::string bytes = ReadFile(path);
  for (size_t size = 0; size < bytes.size(); ++size) {
    WriteFile(path, bytes.substr(0, size));
    const absl::Status status = State(SmallModel()).Read(directory);
    EXPECT_TRUE(absl::IsDataLoss(status)) << size << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  WriteFile(path, bytes + "x");
  EXPECT_TRUE(absl::IsDataLoss(State(SmallModel()).Read(directory)));
}

// What reading the small model's files as `tensors` and `slots` says.
std::string ReadError(const TensorList& tensors, Slots slots = {"m", "v"}) {
  State state(tensors, std::move(slots));
  return std::string(state.Read(WrittenDirectory()).message());
}

TEST(StateFilesTest, AnotherModelIsAnErrorThatNamesTheTensor) {
  TensorList tensors = SmallModel();
  tensors[3] = Tensor("fc.weight", {9, 7});
  EXPECT_THAT(ReadError(tensors),
              AllOf(HasSubstr("fc.weight is F32 [7,9]"), HasSubstr("[9,7]")));
  tensors[3] = Tensor("fc2.weight", {7, 9});
  EXPECT_THAT(ReadError(tensors), HasSubstr("has no tensor fc2.weight"));
  tensors[3] = Tensor("norm.num_batches_tracked", {});
  EXPECT_THAT(ReadError(tensors), HasSubstr("is I64 []"));
}

TEST(StateFilesTest, StateOfAnotherOptimizerIsAnError) {
  EXPECT_THAT(ReadError(SmallModel(), {"m", "w"}),
              HasSubstr("has no tensor w.conv.weight"));
  EXPECT_THAT(ReadError(SmallModel(), {"m"}),
              HasSubstr("resume with the optimizer that wrote it"));
}

TEST(StateFilesTest, WriterWhoSeesNoFilesSaysWhatToDo) {
  const std::string directory = TestDirectory();
  const absl::Status status = State(SmallModel()).WriteAll(directory);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(directory + "/" + kModelFile),
                    HasSubstr("directory that all hosts share")));
}

TEST(StateFilesTest, FullDiskIsAnErrorThatNamesTheFile) {
  const std::string directory = TestDirectory();
  const std::string path = directory + "/" + kModelFile;
  std::filesystem::create_symlink("/dev/full", path);
  const absl::Status status = State(SmallModel()).LayOut(directory);
  EXPECT_THAT(status.message(), HasSubstr("write " + path + ": No space left"));
}

TEST(StateFilesTest, MissingDirectoryIsAnErrorThatNamesIt) {
  const std::string directory = TestDirectory() + "/missing";
  State state(SmallModel());
  for (const absl::Status& status :
       {state.LayOut(directory), state.Read(directory)}) {
    EXPECT_TRUE(absl::IsNotFound(status));
    EXPECT_THAT(status.message(), HasSubstr(directory));
  }
}

TEST(StateFilesTest, ExtrasMustBeWhatTheySay) {
  const std::string directory = TestDirectory();
  State state(SmallModel());
  const auto error = [&](const ExtraTensor& extra) {
    return std::string(state.LayOut(directory, {extra}).message());
  };
  EXPECT_THAT(error({"mean", "F32", {3}, std::string(8, 'x')}),
              HasSubstr("tensor mean of 8 bytes cannot be F32 [3]"));
  EXPECT_THAT(error({"mean", "float", {2}, std::string(8, 'x')}),
              HasSubstr("cannot be float"));
  EXPECT_THAT(error({"scale", "F32", {2}, std::string(8, 'x')}),
              HasSubstr("\"scale\" is already taken"));
}

}  // namespace
}  // namespace psring
