// Short texts that people, launchers and peers write: addresses, lists of
// hosts, keys, sizes and rates, faults, axes of studies.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cluster/node_list.h"
#include "common/net/address.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"
#include "common/optim/compression.h"
#include "common/slowdown.h"
#include "lab/host/link_spec.h"
#include "lab/host/units.h"
#include "lab/study/study_axes.h"
#include "lab/study/way_spec.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

void Address(const std::string& text) {
  const auto address = ParseHostPort(text);
  if (!address.ok()) return RequireReason(address.status());
  Require(!address->host.empty(), "an address has a host");
  Require(address->port >= 0 && address->port <= 65535, "and a port");
  const auto again = ParseHostPort(ToString(*address));
  Require(again.ok() && again->host == address->host &&
              again->port == address->port,
          "what is printed can be read again");
  const auto endpoint = ParseEndpoint(absl::StrCat("tcp://", text));
  Require(endpoint.ok() && endpoint->host == address->host,
          "an endpoint is one too");
}

void NodeList(const std::string& text) {
  constexpr int kMax = 100;
  const auto hosts = ExpandNodeList(text, kMax);
  if (!hosts.ok()) return RequireReason(hosts.status());
  Require(!hosts->empty() && hosts->size() <= kMax, "as many as are wanted");
  const auto again = ExpandNodeList(absl::StrJoin(*hosts, ","), kMax);
  Require(again.ok() && *again == *hosts, "hosts are lists of themselves");
}

void Key(const std::string& text) {
  const auto secret = Secret::FromText(text);
  const auto in_file = ReadKeyFile(WriteScratch("key", text));
  if (text.size() < 256) {
    Require(secret.ok() == in_file.ok(), "files hold what texts say");
  }
  if (!in_file.ok()) RequireReason(in_file.status());
  if (!secret.ok()) return RequireReason(secret.status());
  const auto again = Secret::FromText(secret->ToText());
  Require(again.ok() && again->bytes().view() == secret->bytes().view(),
          "what is printed can be read again");
}

void Units(const std::string& text) {
  if (const auto size = ParseSize(text); size.ok()) {
    Require(*size >= 4 && *size % 4 == 0, "whole floats");
    Require(!FormatSize(*size).empty(), "sizes can be printed");
  } else {
    RequireReason(size.status());
  }
  if (const auto rate = ParseRate(text); rate.ok()) {
    Require(*rate >= 1e6 && *rate <= 1e12, "rates are within their bounds");
  }
  if (const auto numbers = ParseNumbers(text, 1, 9); numbers.ok()) {
    for (int n : *numbers) Require(n >= 1 && n <= 9, "numbers too");
  }
  if (const auto link = ParseLink(text, 4); link.ok()) {
    Require(link->worker < 4 && link->RatesOf(4, 2).size() == 6,
            "every host has a link");
  }
}

void Faults(const std::string& text) {
  const auto slow = Slowdown::Create({text}, 7);
  if (!slow.ok()) return RequireReason(slow.status());
  for (int worker = 0; worker < 3; ++worker) {
    const double factor = slow->FactorOf(worker, 812);
    Require(factor >= 1 && std::isfinite(factor), "a fault slows down");
  }
}

void Codec(const std::string& text) {
  const auto compression = ParseCompression(text);
  if (!compression.ok()) return RequireReason(compression.status());
  Require(BytesPerValue(*compression) > 0 && BytesPerValue(*compression) <= 4,
          "a value has bytes");
}

void Study(const std::string& text) {
  const auto ways = ParseWays(text);
  if (!ways.ok()) RequireReason(ways.status());
  if (ways.ok()) {
    for (const WaySpec& way : *ways) {
      const auto again = ParseWays(way.name);
      Require(again.ok() && again->size() == 1, "a way is named as it is");
      Require(!Explain(way).empty(), "and explained");
    }
  }
  std::vector<std::vector<std::string>> texts;
  for (const Axis& axis : Axes()) {
    texts.push_back(
        {axis.kind == AxisKind::kCounts || axis.kind == AxisKind::kSeeds
             ? text
             : InitialText(axis)});
  }
  const auto values = ParseAxes(texts, 1);
  if (!values.ok()) return RequireReason(values.status());
  Require(values->size() == Axes().size(), "every axis has values");
}

using Reader = void (*)(const std::string& text);
constexpr Reader kReaders[] = {Address, NodeList, Key,  Units,
                               Faults,  Codec,    Study};
constexpr int kNumReaders = 7;

}  // namespace

std::vector<std::string> Seeds() {
  const std::string key = Secret::Random().ToText();
  const std::pair<int, std::string> texts[] = {
      {0, "hostA:7000"},
      {0, "[fe80::1%eth0]:7000"},
      {0, "10.0.0.1:0"},
      {1, "n[1-2],m[03,05-06]"},
      {1, "a[1-3]b[08-11],c"},
      {2, key},
      {2, key + "\n"},
      {3, "2.5MB"},
      {3, "1,2,9"},
      {3, "worker:1:100mbit"},
      {4, "worker:2:x3"},
      {4, "random:p=0.1:x5"},
      {5, "topk:0.01"},
      {5, "int8"},
      {6, "ps-bsp,ps-ssp:3,ring,ps-bsp+backup-workers=1"},
      {6, "1,5,9"},
      {6, "3"},
  };
  std::vector<std::string> seeds;
  for (const auto& [reader, text] : texts) {
    seeds.push_back(Input().Byte(reader).Rest(text).bytes());
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  const int reader = input.Below(psring::fuzz::kNumReaders);
  psring::fuzz::kReaders[reader](input.Rest());
  return 0;
}
