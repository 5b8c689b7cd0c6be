#include "common/state/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace psring {
namespace {

using ::testing::HasSubstr;

TensorEntry Entry(const std::string& name, const std::string& dtype,
                  const std::vector<int64_t>& shape) {
  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype;
  entry.shape = shape;
  return entry;
}

// What a header of tensor "w" with these members is refused for.
std::string ErrorOfTensor(const std::string& members, int64_t data_bytes = 8) {
  const auto entries =
      ParseSafetensorsHeader("{\"w\":{" + members + "}}", data_bytes);
  EXPECT_TRUE(entries.ok() || absl::IsDataLoss(entries.status()));
  return std::string(entries.status().message());
}

TEST(SafetensorsTest, HeaderIsDeterministicAndAligned) {
  std::vector<TensorEntry> entries = {Entry("b", "F32", {2, 3}),
                                      Entry("a\"", "I64", {})};
  const std::string bytes = *LayOutSafetensors(absl::MakeSpan(entries));
  const std::string json =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("a\"":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";
  EXPECT_EQ(bytes.size() % 64, 0u);
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(bytes.find_first_not_of(' ', 8 + json.size()), std::string::npos);
  EXPECT_EQ(*ParseSafetensorsLength(bytes.data(), bytes.size()),
            static_cast<int64_t>(bytes.size()) - 8);
}

TEST(SafetensorsTest, ParsesWhatItLaidOutInTheDatasOrder) {
  std::vector<TensorEntry> written = {
      Entry("z", "F32", {5}), Entry("empty", "F32", {3, 0}),
      Entry("a", "BF16", {2, 2}), Entry("\u00e9\n", "BOOL", {})};
  const std::string bytes = *LayOutSafetensors(absl::MakeSpan(written));
  const auto read = ParseSafetensorsHeader(bytes.substr(8), 29);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ((*read)[i].name, written[i].name);
    EXPECT_EQ((*read)[i].dtype, written[i].dtype);
    EXPECT_EQ((*read)[i].shape, written[i].shape);
    EXPECT_EQ((*read)[i].begin, written[i].begin);
    EXPECT_EQ((*read)[i].end, written[i].end);
  }
}

TEST(SafetensorsTest, RefusesToLayOutWhatNobodyCouldRead) {
  const auto error = [](std::vector<TensorEntry> entries) {
    return std::string(
        LayOutSafetensors(absl::MakeSpan(entries)).status().message());
  };
  const int64_t big = int64_t{1} << 59;
  EXPECT_THAT(error({Entry("w", "F32", {}), Entry("w", "F32", {})}),
              HasSubstr("\"w\" is already taken"));
  EXPECT_THAT(error({Entry("__metadata__", "F32", {})}),
              HasSubstr("already taken"));
  EXPECT_THAT(error({Entry("\xff", "F32", {})}), HasSubstr("not UTF-8"));
  EXPECT_THAT(error({Entry("w", "float", {})}), HasSubstr("unknown dtype"));
  EXPECT_THAT(error({Entry("w", "F32", {-1})}), HasSubstr("[-1]"));
  EXPECT_THAT(error({Entry("w", "F32", {big, 16})}), HasSubstr("no tensor"));
  EXPECT_THAT(error({Entry("a", "F64", {big}), Entry("b", "F64", {big})}),
              HasSubstr("no file can hold"));
  EXPECT_THAT(error({Entry(std::string(17 << 20, 'a'), "F32", {})}),
              HasSubstr("1 tensors need a header of"));
}

TEST(SafetensorsTest, RefusesLengthsThatTheFileCannotHave) {
  const auto error = [](const std::string& length, int64_t file_bytes) {
    return ParseSafetensorsLength(length.data(), file_bytes).status();
  };
  const std::string ten("\x0a\0\0\0\0\0\0\0", 8);
  EXPECT_TRUE(error(ten, 18).ok());
  EXPECT_TRUE(absl::IsDataLoss(error(ten, 17)));
  EXPECT_TRUE(absl::IsDataLoss(error(std::string(8, '\xff'), 18)));
  EXPECT_TRUE(
      absl::IsDataLoss(error(std::string(7, '\0') + "\x01", INT64_MAX)));
}

TEST(SafetensorsTest, RefusesWhatIsNotAHeader) {
  const int depth = 1'000'000;
  for (const std::string& header :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"),
        std::string("{\"a\":\xff}"), std::string("{\"w\":[]}"),
        std::string("{\"w\":null}"), std::string("{} {}"),
        std::string(depth, '['),
        std::string(depth, '[') + std::string(depth, ']')}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseSafetensorsHeader(header, 0).status()))
        << header.substr(0, 20);
  }
}

TEST(SafetensorsTest, RefusesTensorsThatLie) {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(ErrorOfTensor(good), "");
  for (const char* bad :
       {R"("shape":[2],"data_offsets":[0,8])",
        R"("dtype":1,"shape":[2],"data_offsets":[0,8])",
        R"("dtype":"F32","data_offsets":[0,8])",
        R"("dtype":"F32","shape":2,"data_offsets":[0,8])",
        R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])",
        R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])",
        R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])",
        R"("dtype":"F32","shape":[2]})",
        R"("dtype":"F32","shape":[2],"data_offsets":[0])",
        R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])",
        R"("dtype":"F32","shape":[2],"data_offsets":{"0":8})",
        R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])",
        R"("dtype":"F32","shape":[1e999],"data_offsets":[0,8])",
        R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])",
        R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[2],"data_offsets":[8,0])",
        R"("dtype":"F32","shape":[2],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[2],"data_offsets":[4,12])",
        R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"}) {
    EXPECT_NE(ErrorOfTensor(bad), "") << bad;
  }
  EXPECT_THAT(ErrorOfTensor(good, 7), HasSubstr("7 bytes follow"));
  EXPECT_THAT(ErrorOfTensor(good, 9), HasSubstr("9 bytes follow"));
}

TEST(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto error = [](int a_begin, int b_begin, int64_t data_bytes) {
    const auto tensor = [](int begin) {
      return R"({"dtype":"F32","shape":[2],"data_offsets":[)" +
             std::to_string(begin) + "," + std::to_string(begin + 8) + "]}";
    };
    const std::string header =
        R"({"a":)" + tensor(a_begin) + R"(,"b":)" + tensor(b_begin) + "}";
    return ParseSafetensorsHeader(header, data_bytes).status();
  };
  EXPECT_TRUE(error(0, 8, 16).ok());
  EXPECT_TRUE(error(8, 0, 16).ok());
  EXPECT_TRUE(absl::IsDataLoss(error(0, 0, 8)));
  EXPECT_TRUE(absl::IsDataLoss(error(0, 4, 12)));
  EXPECT_TRUE(absl::IsDataLoss(error(0, 12, 20)));
  EXPECT_TRUE(absl::IsDataLoss(error(4, 12, 20)));
}

}  // namespace
}  // namespace psring
