#include "common/net/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "tests/testing/soon.h"

namespace psring {
namespace {

using proto::WireHeader;
using ::testing::HasSubstr;

WireHeader GoodHeader() {
  WireHeader header;
  header.set_kind(WireHeader::PUSH);
  header.set_dtype(WireHeader::FLOAT32);
  header.set_num_elements(2);
  return header;
}

Frames FramesOf(const std::string& header, const std::string& payload) {
  Frames frames;
  frames.push_back(Frame::Copy(header));
  frames.push_back(Frame::Copy(payload));
  return frames;
}

absl::Status ErrorOf(const WireHeader& header, const std::string& payload) {
  return ParseData(FramesOf(header.SerializeAsString(), payload), false)
      .status();
}

TEST(ParseData, ReadsWhatSendDataSent) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0, DataSocketOptions());
  auto dealer =
      Socket::Connect(context, (*router)->endpoint(), DataSocketOptions());
  DataMessage sent;
  sent.header = GoodHeader();
  sent.header.set_step(812);
  sent.payload = Frame::Copy("12345678");
  ASSERT_TRUE(SendData(**dealer, std::move(sent)).ok());
  ASSERT_TRUE(Wait({router->get()}, std::vector<int>{}, Soon()).ok());
  auto frames = (*router)->TryReceive();
  ASSERT_TRUE(frames.ok() && frames->has_value());
  auto message = ParseData(*std::move(*frames), true);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->header.step(), 812);
  EXPECT_EQ(message->payload.view(), "12345678");
  EXPECT_FALSE(message->peer.empty());
}

TEST(ParseData, RefusesAPayloadThatItsHeaderDoesNotDescribe) {
  EXPECT_TRUE(ErrorOf(GoodHeader(), "12345678").ok());
  for (const char* payload : {"", "1234567", "1234", "123456781234"}) {
    EXPECT_THAT(std::string(ErrorOf(GoodHeader(), payload).message()),
                HasSubstr("elements"));
  }
  WireHeader huge = GoodHeader();
  huge.set_num_elements(std::numeric_limits<uint64_t>::max() / 4 + 3);
  EXPECT_FALSE(ErrorOf(huge, "12345678").ok());
}

// Their sizes are the decoder's to check, up to a bound.
TEST(ParseData, LetsEncodedPayloadsHaveAnySizeUpToABound) {
  WireHeader encoded = GoodHeader();
  encoded.set_dtype(WireHeader::ENCODED);
  for (const char* payload : {"", "1", "1234567", "123456789"}) {
    EXPECT_TRUE(ErrorOf(encoded, payload).ok());
  }
  EXPECT_FALSE(ErrorOf(encoded, std::string(kMaxPayloadBytes + 1, 'x')).ok());
  encoded.set_num_elements(kMaxPayloadElements + 1);
  EXPECT_FALSE(ErrorOf(encoded, "1").ok());
  encoded.set_num_elements(std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(ErrorOf(encoded, "1").ok());
}

TEST(ParseData, RefusesUnknownKindsAndTypes) {
  WireHeader kind = GoodHeader();
  kind.set_kind(static_cast<WireHeader::Kind>(77));
  EXPECT_THAT(std::string(ErrorOf(kind, "12345678").message()),
              HasSubstr("kind 77"));
  WireHeader dtype = GoodHeader();
  dtype.clear_dtype();
  EXPECT_THAT(std::string(ErrorOf(dtype, "12345678").message()),
              HasSubstr("dtype"));
}

TEST(ParseData, RefusesAnyOtherNumberOfFrames) {
  Frames one;
  one.push_back(Frame::Copy("x"));
  EXPECT_FALSE(ParseData(std::move(one), false).ok());
  EXPECT_FALSE(
      ParseData(FramesOf(GoodHeader().SerializeAsString(), "12345678"), true)
          .ok());
  EXPECT_FALSE(ParseData(Frames(), false).ok());
}

// Of garbage and of good headers with a byte changed: what is taken describes
// its payload.
TEST(ParseData, TakesOnlyWhatMatchesOfRandomBytes) {
  std::mt19937 random(7);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string header(random() % 64, ' ');
    for (char& c : header) c = static_cast<char>(random());
    if (i % 2 == 0) {
      header = GoodHeader().SerializeAsString();
      header[random() % header.size()] = static_cast<char>(random());
    }
    const auto message = ParseData(FramesOf(header, "12345678"), false);
    if (!message.ok()) continue;
    ++taken;
    const WireHeader& parsed = message->header;
    EXPECT_TRUE(WireHeader::Kind_IsValid(parsed.kind()));
    EXPECT_NE(parsed.kind(), WireHeader::KIND_UNSPECIFIED);
    if (parsed.dtype() == WireHeader::ENCODED) {
      EXPECT_LE(parsed.num_elements(), uint64_t{kMaxPayloadElements});
    } else {
      EXPECT_EQ(parsed.num_elements(),
                parsed.dtype() == WireHeader::FLOAT32 ? 2u : 8u);
    }
  }
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace psring
