#include "common/cluster/node_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

constexpr size_t kMaxHostName = 255;

absl::StatusOr<int> ParseHostNumber(absl::string_view text) {
  int value = 0;
  const bool digits =
      std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a host's number"));
}

// "03,05-06" -> 03, 05, 06: the first `max` of them, though all is checked.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges,
                                                      size_t max) {
  std::vector<std::string> result;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    const auto first = ParseHostNumber(ends.front());
    if (!first.ok()) return first.status();
    const auto last = ParseHostNumber(ends.back());
    if (!last.ok()) return last.status();
    if (ends.size() > 2 || *first > *last ||
        ends.front().size() > kMaxHostName) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", range, "' is not a range"));
    }
    const int width = static_cast<int>(ends.front().size());
    for (int64_t n = *first; n <= *last && result.size() < max; ++n) {
      result.push_back(absl::StrFormat("%0*d", width, n));
    }
  }
  return result;
}

bool IsHostNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
}

// Every name of `hosts` followed by every one of `endings`, the first `max`.
absl::StatusOr<std::vector<std::string>> Product(
    const std::vector<std::string>& hosts,
    const std::vector<std::string>& endings, size_t max) {
  std::vector<std::string> result;
  for (const std::string& host : hosts) {
    for (const std::string& ending : endings) {
      if (result.size() == max) return result;
      if (host.size() + ending.size() > kMaxHostName) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a host's name is longer than ", kMaxHostName, " characters"));
      }
      result.push_back(host + ending);
    }
  }
  return result;
}

// One item of the list: plain text and brackets in turn, "a[1-2]b[3-4]".
absl::StatusOr<std::vector<std::string>> ExpandItem(absl::string_view item,
                                                    size_t max) {
  std::vector<std::string> hosts = {""};
  if (item.empty()) return absl::InvalidArgumentError("a host's name is empty");
  while (!item.empty()) {
    const bool bracket = item.front() == '[';
    const size_t end = item.find(bracket ? ']' : '[');
    if (bracket && end == absl::string_view::npos) {
      return absl::InvalidArgumentError("a ']' is missing");
    }
    absl::StatusOr<std::vector<std::string>> endings;
    if (bracket) {
      endings = ExpandRanges(item.substr(1, end - 1), max);
      if (!endings.ok()) return endings.status();
    } else {
      const absl::string_view text = item.substr(0, end);
      if (!std::all_of(text.begin(), text.end(), IsHostNameCharacter)) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not part of a host's name"));
      }
      endings = std::vector<std::string>{std::string(text)};
    }
    auto longer = Product(hosts, *endings, max);
    if (!longer.ok()) return longer.status();
    hosts = *std::move(longer);
    item.remove_prefix(std::min(item.size(), bracket ? end + 1 : end));
  }
  return hosts;
}

// Where the list's first item ends: at a comma outside brackets.
size_t EndOfItem(absl::string_view list) {
  bool inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') inside = true;
    if (list[i] == ']') inside = false;
    if (list[i] == ',' && !inside) return i;
  }
  return list.size();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list,
                                                        int max_hosts) {
  const size_t max = std::max(1, max_hosts);
  std::vector<std::string> hosts;
  while (true) {
    const size_t end = EndOfItem(list);
    const auto item = ExpandItem(list.substr(0, end), max);
    if (!item.ok()) return item.status();
    const size_t room = std::min(item->size(), max - hosts.size());
    hosts.insert(hosts.end(), item->begin(), item->begin() + room);
    if (end == list.size()) return hosts;
    list.remove_prefix(end + 1);
  }
}

}  // namespace psring
