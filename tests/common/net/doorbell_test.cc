#include "common/net/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace psring {
namespace {

bool Readable(const Doorbell& doorbell) {
  pollfd item = {doorbell.fd(), POLLIN, 0};
  return poll(&item, 1, 0) == 1;
}

TEST(Doorbell, IsReadableFromARingUntilCleared) {
  auto doorbell = Doorbell::Create();
  ASSERT_TRUE(doorbell.ok());
  auto button = DoorbellButton::Open(getpid(), (*doorbell)->write_fd());
  ASSERT_TRUE(button.ok()) << button.status();
  EXPECT_FALSE(Readable(**doorbell));
  (*button)->Ring();
  (*button)->Ring();
  EXPECT_TRUE(Readable(**doorbell));
  (*doorbell)->Clear();
  EXPECT_FALSE(Readable(**doorbell));
}

// A pipe holds 64 KiB.
TEST(Doorbell, ManyRingsThatNobodyHearsBlockNobody) {
  auto doorbell = Doorbell::Create();
  auto button = DoorbellButton::Open(getpid(), (*doorbell)->write_fd());
  for (int i = 0; i < 100000; ++i) (*button)->Ring();
  EXPECT_TRUE(Readable(**doorbell));
  (*doorbell)->Clear();
  EXPECT_FALSE(Readable(**doorbell));
}

TEST(Doorbell, RingingForSomebodyWhoIsGoneDoesNoHarm) {
  auto doorbell = Doorbell::Create();
  auto button = DoorbellButton::Open(getpid(), (*doorbell)->write_fd());
  doorbell->reset();
  (*button)->Ring();  // SIGPIPE would end this test
}

TEST(Doorbell, WhatIsNoPipeIsNotOpened) {
  EXPECT_FALSE(DoorbellButton::Open(getpid(), 1 << 30).ok());
  EXPECT_FALSE(DoorbellButton::Open(1 << 30, 0).ok());
}

}  // namespace
}  // namespace psring
