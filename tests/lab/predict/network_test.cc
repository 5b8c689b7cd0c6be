#include "lab/predict/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "lab/predict/scenario.h"

namespace psring {
namespace {

// Notes when what arrives; a is a message's name, b its lane. Sends what a
// timer brings.
class Arrivals : public Network::Owner {
 public:
  void OnMessage(const Message& message) override {
    at_[message.a] = network_->now();
  }
  void OnTimer(const Message& what) override { network_->Send(what, what.b); }
  void Watch(Network& network) { network_ = &network; }
  double at(int name) const { return at_.at(name); }

 private:
  Network* network_ = nullptr;
  std::map<int, double> at_;
};

Hardware Links() { return {.link_bytes_per_s = 1e8, .latency_s = 0}; }

// Host 0 sends `flows` messages of 1 MB to the hosts 1, 2, ..., one flow each.
std::vector<double> SendAtOnce(const Hardware& hardware, int flows,
                               uint64_t seed) {
  Arrivals arrivals;
  Network network(hardware, arrivals, std::vector<int>(flows + 1, 1), seed);
  arrivals.Watch(network);
  for (int i = 0; i < flows; ++i) {
    network.SetLoad(0, i, 1e6);
    network.Send({.from = 0, .to = i + 1, .bytes = 1e6, .a = i}, i);
  }
  network.Run();
  std::vector<double> at;
  for (int i = 0; i < flows; ++i) at.push_back(arrivals.at(i));
  return at;
}

TEST(Network, FairFlowsComeTogetherAndOthersDoNot) {
  Hardware hardware = Links();
  const std::vector<double> uneven = SendAtOnce(hardware, 8, 1);
  hardware.fair_flows = true;
  const std::vector<double> fair = SendAtOnce(hardware, 8, 1);
  // The link is never idle: in both the last one comes when all have passed.
  EXPECT_NEAR(*std::max_element(uneven.begin(), uneven.end()), 0.08, 1e-6);
  EXPECT_NEAR(*std::max_element(fair.begin(), fair.end()), 0.08, 1e-6);
  EXPECT_GT(*std::min_element(fair.begin(), fair.end()), 0.074);
  EXPECT_LT(*std::min_element(uneven.begin(), uneven.end()), 0.065);
  EXPECT_NE(uneven, SendAtOnce(Links(), 8, 2));
}

TEST(Network, IdleFlowsDoNotSaveUpTurns) {
  Arrivals arrivals;
  Network network(Links(), arrivals, {1, 1, 1}, /*seed=*/0);
  arrivals.Watch(network);
  network.Send({.from = 0, .to = 1, .bytes = 20e6, .a = 0}, 0);
  network.SetTimer(0.1, {.from = 0, .to = 2, .bytes = 5e6, .a = 1, .b = 1});
  network.Run();
  // Alone it would take 0.05 s; if it went last, 0.15.
  EXPECT_GT(arrivals.at(1), 0.16);
  EXPECT_LT(arrivals.at(1), 0.24);
  EXPECT_NEAR(std::max(arrivals.at(0), arrivals.at(1)), 0.25, 1e-6);
}

// Host 0 sends to two others, or they to it: its link is the one that counts.
TEST(Network, IdleLinksSaveUpNoMoreThanABurst) {
  Hardware hardware = Links();
  hardware.burst_s = 0.01;
  for (const bool sends : {true, false}) {
    Arrivals arrivals;
    Network network(hardware, arrivals, {1, 1, 1}, /*seed=*/0);
    arrivals.Watch(network);
    for (const int other : {1, 2}) {
      network.SetTimer(1, {.from = sends ? 0 : other,
                           .to = sends ? other : 0,
                           .bytes = 5e6,
                           .a = other,
                           .b = other});
    }
    network.Run();
    EXPECT_NEAR(std::max(arrivals.at(1), arrivals.at(2)), 1.09, 1e-6) << sends;
  }
}

// A lottery with the same weights would stray by many packets.
TEST(Network, FlowsKeepTheirShares) {
  constexpr double kPacketSeconds = 65536 / 1e8;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Arrivals arrivals;
    Network network(Links(), arrivals, {1, 1, 1}, seed);
    arrivals.Watch(network);
    for (int i = 0; i < 8; ++i) {
      network.Send({.from = 0, .to = 1 + i % 2, .bytes = 10e6, .a = i}, i % 2);
    }
    network.Run();
    // While both have something to send, each part takes as long as any other.
    const int faster = arrivals.at(0) < arrivals.at(1) ? 0 : 1;
    EXPECT_NEAR(arrivals.at(faster + 6), 4 * arrivals.at(faster),
                10 * kPacketSeconds)
        << seed;
  }
}

// A lane that stands for 9 flows has the turns of 9.
TEST(Network, LanesOfManyFlowsHaveAsManyTurns) {
  Hardware hardware = Links();
  hardware.fair_flows = true;
  Arrivals arrivals;
  Network network(hardware, arrivals, {1, 1, 9}, /*seed=*/0);
  arrivals.Watch(network);
  for (int lane : {0, 1}) network.SetLoad(0, lane, 1e6);
  network.Send({.from = 0, .to = 1, .bytes = 1e6, .fan_out = 1, .a = 0}, 0);
  network.Send({.from = 0, .to = 2, .bytes = 1e6, .fan_out = 9, .a = 1}, 1);
  network.Run();
  EXPECT_NEAR(arrivals.at(0), 0.1, 0.01);
  EXPECT_NEAR(arrivals.at(1), 0.1, 1e-6);
}

TEST(Network, SharedCoresHandMessagesOverOneAfterAnother) {
  Hardware hardware = {.link_bytes_per_s = 1e12, .latency_s = 0};
  hardware.shared_cores = 2;
  hardware.cpu_s_per_byte = 2e-9;
  const std::vector<double> at = SendAtOnce(hardware, 4, 0);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(at[i], (i + 1) * 1e-3, 1e-5) << i;
}

TEST(Network, SharedCoresWorkNoMoreThanASocketAhead) {
  Hardware hardware = Links();
  hardware.shared_cores = 1;
  hardware.cpu_s_per_byte = 1e-9;
  Arrivals arrivals;
  Network network(hardware, arrivals, {1, 1, 1, 1}, /*seed=*/0);
  arrivals.Watch(network);
  for (int i = 0; i < 100; ++i) {
    network.Send({.from = 0, .to = 1, .bytes = 1e6, .a = i}, 0);
  }
  network.Send({.from = 2, .to = 3, .bytes = 1e6, .a = 100}, 0);
  network.Run();
  // 5 ms of the cores for the five messages that fill the other host's socket,
  // its own 1 ms, and 10 of the link; not the 100 ms that all others cost.
  EXPECT_NEAR(arrivals.at(100), 0.016, 1e-4);
  EXPECT_NEAR(arrivals.at(99), 1.0, 0.01);
}

}  // namespace
}  // namespace psring
