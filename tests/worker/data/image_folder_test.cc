#include "worker/data/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/data/pictures.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Jpeg;
using testing::Png;
using testing::Slope;
using testing::TestDirectory;
using testing::WriteFile;

constexpr int kSide = 16;

// The blue level of image `index`, whose picture is Slope(..., blue).
int BlueOf(const Dataset& dataset, int64_t index) {
  std::vector<uint8_t> pixels(dataset.pixels_per_image());
  const absl::Status read =
      dataset.CopyPixels({index}, 0, absl::MakeSpan(pixels));
  EXPECT_TRUE(read.ok()) << read;
  return pixels[pixels.size() - kSide * kSide / 2];
}

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  WriteFile(path, bytes);
}

// Two classes, cat and dog, three training and two test pictures, of blue 10,
// 20, 30 and 110, 120 in the order of their indices.
std::string TinyFolder() {
  const std::string folder = TestDirectory();
  Write(folder + "/train/dog/b.PNG", Png(Slope(40, 30, 30)));
  Write(folder + "/train/cat/deep/1.jpeg", Png(Slope(40, 30, 10)));
  Write(folder + "/train/cat/z.JPG", Jpeg(Slope(40, 30, 20)));
  Write(folder + "/val/cat/1.jpg", Jpeg(Slope(40, 30, 110)));
  Write(folder + "/val/dog/1.jpg", Jpeg(Slope(40, 30, 120)));
  return folder;
}

absl::StatusOr<DatasetPair> Load(const std::string& folder) {
  return LoadImageFolder({.folder = folder, .side = kSide});
}

TEST(ImageFolder, IsReadInTheOrderOfNames) {
  const std::string folder = TinyFolder();
  Write(folder + "/train/cat/readme.txt", "not a picture");
  Write(folder + "/train/cat/._1.jpg", "hidden");
  Write(folder + "/train/.cache/1.jpg", "hidden");
  Write(folder + "/train/cat/.ipynb_checkpoints/1.jpg", "hidden");
  std::filesystem::create_directory_symlink("..", folder + "/train/cat/up");
  Write(folder + "/train/list.csv", "not a class");
  const auto data = Load(folder);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->train.labels, ElementsAre(0, 0, 1));
  EXPECT_THAT(data->test.labels, ElementsAre(0, 1));
  EXPECT_EQ(data->train.shape, (ImageShape{3, kSide, kSide, 2}));
  EXPECT_EQ(data->test.shape, data->train.shape);
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(BlueOf(data->train, i), 10 + 10 * i, 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(BlueOf(data->test, i), 110 + 10 * i, 2);
}

TEST(ImageFolder, TakesTestInPlaceOfVal) {
  const std::string folder = TinyFolder();
  std::filesystem::rename(folder + "/val", folder + "/test");
  const auto data = Load(folder);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test.size(), 2);
}

std::vector<uint8_t> Pixels(const Dataset& dataset, int64_t index,
                            uint64_t draw) {
  std::vector<uint8_t> pixels(dataset.pixels_per_image());
  EXPECT_TRUE(dataset.CopyPixels({index}, draw, absl::MakeSpan(pixels)).ok());
  return pixels;
}

TEST(ImageFolder, ShowsAnotherPartOfATrainingPictureWithEachDraw) {
  const std::string folder = TinyFolder();
  const auto data = Load(folder);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Pixels(data->train, 0, 7), Pixels(data->train, 0, 7));
  EXPECT_NE(Pixels(data->train, 0, 7), Pixels(data->train, 0, 8));
  EXPECT_EQ(Pixels(data->test, 0, 7), Pixels(data->test, 0, 8));
  const auto plain =
      LoadImageFolder({.folder = folder, .side = kSide, .augment = false});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(Pixels(plain->train, 0, 7), Pixels(plain->train, 0, 8));
}

TEST(ImageFolder, IsKnownByTheNamesOfItsFiles) {
  const std::string folder = TinyFolder();
  const std::string listing = Load(folder)->identity;
  EXPECT_EQ(listing.size(), strlen("listing=") + 16);
  EXPECT_EQ(Load(folder)->identity, listing);
  std::filesystem::rename(folder + "/val/cat/1.jpg", folder + "/val/cat/2.jpg");
  EXPECT_NE(Load(folder)->identity, listing);
}

TEST(ImageFolder, SaysThatALinkLeadsNowhere) {
  const std::string folder = TinyFolder();
  std::filesystem::create_symlink("nothing.jpg", folder + "/train/cat/0.jpg");
  const auto data = Load(folder);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<uint8_t> out(data->train.pixels_per_image());
  const absl::Status read = data->train.CopyPixels({0}, 0, absl::MakeSpan(out));
  EXPECT_THAT(std::string(read.message()),
              HasSubstr(folder + "/train/cat/0.jpg"));
}

TEST(ImageFolder, NamesTheFileThatCannotBeRead) {
  const std::string folder = TinyFolder();
  const std::string whole = Jpeg(Slope(40, 30));
  const std::string path = folder + "/train/cat/z.JPG";
  const auto data = Load(folder);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<uint8_t> out(data->train.pixels_per_image());
  const auto read = [&] {
    return data->train.CopyPixels({1}, 0, absl::MakeSpan(out));
  };
  EXPECT_TRUE(read().ok());
  WriteFile(path, whole.substr(0, whole.size() / 2));
  EXPECT_EQ(read().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read().message()),
              ::testing::AllOf(HasSubstr(path + ": damaged"),
                               HasSubstr("Replace the file or remove it")));
  std::filesystem::remove(path);
  EXPECT_EQ(read().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read().message()), HasSubstr(path));
}

TEST(ImageFolder, SaysWhatItMisses) {
  const auto expect = [](const std::string& folder, const std::string& said) {
    const auto data = Load(folder);
    EXPECT_FALSE(data.ok());
    EXPECT_THAT(std::string(data.status().message()), HasSubstr(said));
  };
  const std::string folder = TinyFolder();
  expect("/does/not/exist", "/does/not/exist/train");
  expect("/does/not/exist", "Expected are train/CLASS/PICTURE");
  std::filesystem::rename(folder + "/val", folder + "/validation");
  expect(folder, folder + "/val");
  std::filesystem::rename(folder + "/validation", folder + "/val");
  std::filesystem::create_directory(folder + "/val/bird");
  expect(folder, folder + "/val/bird holds no pictures");
  Write(folder + "/val/bird/1.png", Png(Slope(20, 20)));
  expect(folder, "hold different classes: bird is in one of them only");
  std::filesystem::remove_all(folder + "/train/dog");
  expect(folder, folder + "/train holds 1 classes");
  // As val/ is when it has been downloaded.
  std::filesystem::remove_all(folder + "/val");
  Write(folder + "/val/1.jpg", Jpeg(Slope(20, 20)));
  expect(folder, folder + "/val holds no folder of a class");
}

TEST(ParseImageFolderOptions, TakesAFolderAndWhatFollows) {
  const auto options = ParseImageFolderOptions("/data/a b,size=64,augment=no");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->folder, "/data/a b");
  EXPECT_EQ(options->side, 64);
  EXPECT_FALSE(options->augment);
  EXPECT_EQ(ParseImageFolderOptions("/data/a,b,size=32")->folder, "/data/a,b");
  EXPECT_EQ(ParseImageFolderOptions("/data")->side, 224);
  EXPECT_TRUE(ParseImageFolderOptions("/data,augment=yes")->augment);
}

TEST(ParseImageFolderOptions, NamesThePartAtFault) {
  for (const char* text : {"/data,size=7", "/data,size=4097", "/data,size=big",
                           "/data,size=", "/data,augment=maybe"}) {
    const auto options = ParseImageFolderOptions(text);
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string part = std::string(text).substr(6);
    EXPECT_THAT(std::string(options.status().message()),
                HasSubstr(absl::StrCat("'", part, "'")));
  }
  EXPECT_THAT(std::string(ParseImageFolderOptions("").status().message()),
              HasSubstr("names no folder"));
}

}  // namespace
}  // namespace psring
