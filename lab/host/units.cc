#include "lab/host/units.h"

#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

struct Unit {
  const char* name;
  double factor;
};

constexpr Unit kSizes[] = {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}};
constexpr Unit kRates[] = {{"mbit", 1e6}, {"gbit", 1e9}};

// A positive number with one of `units` behind it.
template <size_t N>
std::optional<double> ParseWithUnit(absl::string_view text,
                                    const Unit (&units)[N]) {
  text = absl::StripAsciiWhitespace(text);
  for (const Unit& unit : units) {
    if (!absl::EndsWithIgnoreCase(text, unit.name)) continue;
    text.remove_suffix(absl::string_view(unit.name).size());
    double number = 0;
    if (!absl::SimpleAtod(text, &number) || !(number > 0)) return {};
    return number * unit.factor;
  }
  return {};
}

// The number with three digits, in the largest unit that leaves it at 1 or
// more.
template <size_t N>
std::string Format(double value, const Unit (&units)[N]) {
  const Unit* unit = &units[0];
  for (const Unit& larger : units) {
    if (value >= larger.factor * 0.9995) unit = &larger;
  }
  const double number = value / unit->factor;
  const int decimals = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, number, unit->name);
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  int64_t whole = 0;
  std::optional<double> bytes = ParseWithUnit(text, kSizes);
  if (!bytes && absl::SimpleAtoi(text, &whole)) {
    bytes = static_cast<double>(whole);
  }
  if (!bytes || *bytes < sizeof(float) || *bytes > 1e12) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is not a size: a number of KB, MB or GB, from 4 B to "
                     "1000 GB, such as 1KB or 2.5MB"));
  }
  const int64_t floats = static_cast<int64_t>(*bytes / sizeof(float));
  return floats * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const auto size = ParseSize(part);
    if (!size.ok()) return size.status();
    sizes.push_back(*size);
  }
  return sizes;
}

absl::StatusOr<double> ParseRate(absl::string_view text) {
  const std::optional<double> rate = ParseWithUnit(text, kRates);
  if (!rate || *rate < 1e6 || *rate > 1e12) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text,
        "\" is not a rate: a number of mbit or gbit, from 1mbit to "
        "1000gbit, such as 1gbit"));
  }
  return *rate;
}

absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view text, int low,
                                              int high) {
  std::vector<int> numbers;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < low || number > high) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\" in \"", text, "\" is not a number from ",
                       low, " to ", high));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::string FormatSize(int64_t bytes) {
  const Unit* unit = &kSizes[3];
  for (const Unit* larger : {&kSizes[0], &kSizes[1], &kSizes[2]}) {
    if (static_cast<double>(bytes) >= larger->factor) unit = larger;
  }
  return absl::StrCat(static_cast<double>(bytes) / unit->factor, " ",
                      unit->name);
}

std::string FormatBandwidth(double bytes_per_s) {
  constexpr Unit kUnits[] = {{"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}};
  return Format(bytes_per_s, kUnits);
}

std::string FormatLinkRate(double bits_per_s) {
  constexpr Unit kUnits[] = {{"Mbit/s", 1e6}, {"Gbit/s", 1e9}};
  return Format(bits_per_s, kUnits);
}

std::string FormatTime(double seconds) {
  constexpr Unit kUnits[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return Format(seconds, kUnits);
}

}  // namespace psring
