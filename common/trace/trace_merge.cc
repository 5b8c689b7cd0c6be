#include "common/trace/trace_merge.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

using nlohmann::json;

struct Event {
  size_t process;
  std::optional<double> ts;  // metadata has none
  int64_t common_ns = 0;
  std::string text;  // without ts
};

}  // namespace

absl::StatusOr<std::vector<TraceInfo>> MergeTraces(const std::string& directory,
                                                   const std::string& out) {
  std::vector<Event> events;
  auto infos = ReadTraces(directory, [&](size_t process, const json& event) {
    json rest = event;
    std::optional<double> ts;
    if (event.contains("ts")) ts = event["ts"].get<double>();
    rest.erase("ts");
    events.push_back({process, ts, 0, rest.dump()});
  });
  if (!infos.ok()) return infos.status();
  int64_t first = INT64_MAX;
  for (Event& event : events) {
    if (!event.ts.has_value()) continue;
    event.common_ns = (*infos)[event.process].CommonNs(*event.ts);
    first = std::min(first, event.common_ns);
  }
  // Metadata first: its time is 0.
  std::stable_sort(
      events.begin(), events.end(),
      [](const Event& a, const Event& b) { return a.common_ns < b.common_ns; });
  std::ofstream file(out, std::ios::binary);
  const bool opened = file.is_open();  // else what is there is another's
  const char* before = "[\n";
  for (const Event& event : events) {
    file << before;
    before = ",\n";
    if (event.ts.has_value()) {
      const int64_t ns = event.common_ns - first;
      file << absl::StreamFormat("{\"ts\":%d.%03d,", ns / 1000, ns % 1000)
           << event.text.substr(1);
    } else {
      file << event.text;
    }
  }
  file << "\n]\n";
  file.close();
  if (!file) {
    const char* why = strerror(errno);
    std::error_code unused;
    if (opened && std::filesystem::is_regular_file(out, unused)) {
      std::filesystem::remove(out, unused);
    }
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write ", out, ": ", why));
  }
  return infos;
}

}  // namespace psring
