#include "common/trace/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "common/trace/whole_number.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string PathOf(const std::string& directory, const std::string& role,
                   int rank) {
  return absl::StrCat(directory, "/", role, "-", rank, ".trace.json");
}

// Of what files say: sums of a few of these fit an int64_t. 18 years; a few
// more processes than any job has.
constexpr int64_t kMostNs = int64_t{1} << 59;
constexpr double kMostUs = 1e14;
constexpr int kMostProcesses = 1 << 16;
// Who copies or writes an event takes a stack as deep. psring's own have 3.
constexpr int kMostDepth = 16;

// Whether its times can be counted with.
bool HasTimes(const json& event) {
  for (const char* key : {"ts", "dur"}) {
    const auto time = event.find(key);
    if (time == event.end()) continue;
    if (!time->is_number() || !(std::abs(time->get<double>()) <= kMostUs)) {
      return false;
    }
  }
  return true;
}

bool Counts(const TraceInfo& info) {
  const bool clock_counts = std::all_of(
      info.clock.begin(), info.clock.end(), [](const ClockReading& reading) {
        return reading.at_ns >= 0 && reading.at_ns <= kMostNs &&
               reading.ahead_ns >= -kMostNs && reading.ahead_ns <= kMostNs &&
               reading.round_trip_ns >= -kMostNs &&
               reading.round_trip_ns <= kMostNs;
      });
  return clock_counts && info.workers >= 1 && info.workers <= kMostProcesses &&
         info.servers >= 0 && info.servers <= kMostProcesses &&
         info.staleness >= 0 && info.staleness <= kMostNs &&
         info.origin_ns >= 0 && info.origin_ns <= kMostNs && info.date_ns >= 0;
}

void TakeInfo(const json& event, TraceInfo& info) {
  const std::string name = event.at("name");
  const std::string ph = event.at("ph");
  if (name == "psring") {
    const json& args = event.at("args");
    args.at("role").get_to(info.role);
    info.rank = static_cast<int>(WholeOf(args.at("rank")));
    args.at("job").get_to(info.job);
    info.workers = static_cast<int>(WholeOf(args.at("workers")));
    info.servers = static_cast<int>(WholeOf(args.at("servers")));
    args.at("sync").get_to(info.sync);
    info.staleness = WholeOf(args.at("staleness"));
    info.backup_workers = static_cast<int>(WholeOf(args.at("backup_workers")));
    info.origin_ns = WholeOf(args.at("origin_ns"));
    info.date_ns = WholeOf(args.at("date_ns"));
  } else if (name == "psring_clock") {
    const json& args = event.at("args");
    // Earlier versions do not say when.
    info.clock.push_back(
        {args.contains("at_ns") ? WholeOf(args.at("at_ns")) : info.origin_ns,
         WholeOf(args.at("ahead_ns")), WholeOf(args.at("round_trip_ns"))});
  } else if (ph == "i") {
    info.notes.push_back(name);
  }
}

// A parser's reason quotes what it last read, which may be half of the file.
constexpr size_t kMostBytesOfReason = 200;

absl::Status Damaged(const std::string& path, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat(path, " is damaged (", why,
                   "): copy it again from its host, or run the job again"));
}

absl::StatusOr<TraceInfo> ReadTrace(
    const std::string& path,
    absl::FunctionRef<void(const json& event)> on_event) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  TraceInfo info;
  info.path = path;
  bool counts = true, shallow = true;
  const auto take = [&](int depth, json::parse_event_t kind, json& parsed) {
    if (depth > kMostDepth) return shallow = false;
    if (depth != 1 || kind != json::parse_event_t::object_end) return true;
    TakeInfo(parsed, info);
    if (HasTimes(parsed)) {
      on_event(parsed);
    } else {
      counts = false;
    }
    return false;  // or all of the file would be kept
  };
  try {
    // Called for what it hands to `take`.
    if (!json::parse(file, take).is_array() || info.role.empty()) {
      return absl::DataLossError(
          absl::StrCat(path, " is not a timeline that psring has written"));
    }
    if (!shallow) return Damaged(path, "an event is nested too deeply");
    if (!counts || !Counts(info)) {
      return Damaged(path, "a number is out of its bounds");
    }
  } catch (const json::exception& error) {
    return Damaged(
        path, absl::string_view(error.what()).substr(0, kMostBytesOfReason));
  }
  info.clock = BestReadings(std::move(info.clock));
  return info;
}

absl::Status CheckPlace(const TraceInfo& info, const std::string& role,
                        int rank) {
  const int processes = role == "ps" ? info.servers : info.workers;
  if (info.role == role && info.rank == rank && rank < processes) {
    return absl::OkStatus();
  }
  return Damaged(
      info.path,
      absl::StrCat("it is the timeline of ", info.role, " ", info.rank, " of ",
                   Counted(info.workers, "worker"), " and ",
                   Counted(info.servers, "server")));
}

absl::Status CheckJob(const TraceInfo& info, const TraceInfo& first) {
  if (info.job == first.job) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(info.path, " is of another job than ", first.path,
                   ": give each job a folder of its own"));
}

// Monotonic clocks of two hosts have nothing in common but that they run: a
// process that ended before it could compare its clock is placed by its date.
void GuessClocks(std::vector<TraceInfo>& infos) {
  const auto known =
      std::find_if(infos.begin(), infos.end(),
                   [](const TraceInfo& i) { return !i.clock.empty(); });
  const TraceInfo& other = known == infos.end() ? infos.front() : *known;
  for (TraceInfo& info : infos) {
    info.guessed_ahead_ns =
        other.CommonNs(0) - info.origin_ns +
        std::clamp(info.date_ns - other.date_ns, -kMostNs, kMostNs);
  }
}

// Otherwise there may be one, which cannot be looked at.
bool IsMissing(const std::error_code& error) {
  return !error || error == std::errc::no_such_file_or_directory ||
         error == std::errc::not_a_directory;
}

}  // namespace

int64_t TraceInfo::CommonNs(double ts) const {
  const int64_t ns = origin_ns + std::llround(ts * 1000);
  return ns + (clock.empty() ? guessed_ahead_ns : AheadAt(clock, ns));
}

absl::StatusOr<std::vector<TraceInfo>> ReadTraces(
    const std::string& directory,
    absl::FunctionRef<void(size_t process, const json& event)> on_event) {
  std::vector<TraceInfo> infos;
  const auto read = [&](const std::string& role, int rank) {
    auto info =
        ReadTrace(PathOf(directory, role, rank),
                  [&](const json& event) { on_event(infos.size(), event); });
    if (!info.ok()) return info.status();
    if (absl::Status s = CheckPlace(*info, role, rank); !s.ok()) return s;
    infos.push_back(*std::move(info));
    return CheckJob(infos.back(), infos.front());
  };
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat(
        "there is no folder ", directory,
        IsMissing(error) ? "" : absl::StrCat(" (", error.message(), ")"),
        ": name the one of a run's --timeline"));
  }
  // Either is there in every job that has written anything.
  const bool ps = fs::exists(PathOf(directory, "ps", 0), error);
  if (!ps && !fs::exists(PathOf(directory, "worker", 0), error)) {
    if (!IsMissing(error)) {
      return absl::PermissionDeniedError(
          absl::StrCat("cannot read ", PathOf(directory, "worker", 0), ": ",
                       error.message()));
    }
    return absl::NotFoundError(absl::StrCat(
        PathOf(directory, "worker", 0),
        " is missing: this folder has no timeline of a job's first process"));
  }
  if (absl::Status s = read(ps ? "ps" : "worker", 0); !s.ok()) return s;
  const int servers = infos[0].servers;
  const int workers = infos[0].workers;
  for (int i = 0; i < servers + workers; ++i) {
    const char* role = i < servers ? "ps" : "worker";
    const int rank = i < servers ? i : i - servers;
    const std::string path = PathOf(directory, role, rank);
    if (!fs::exists(path, error)) {
      return absl::NotFoundError(
          absl::StrCat(path, " is missing: copy the files of all ",
                       servers + workers, " processes into this folder"));
    }
    if (i == 0) continue;
    if (absl::Status s = read(role, rank); !s.ok()) return s;
  }
  GuessClocks(infos);
  return infos;
}

}  // namespace psring
