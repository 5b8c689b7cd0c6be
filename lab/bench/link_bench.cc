#include "lab/bench/link_bench.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lab/host/job.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

// Of each link: they take 4 s, which a step's timeout leaves room for.
constexpr int64_t kMostWindows = 200;

absl::StatusOr<LinkStream> ReadLink(const std::string& directory, int from,
                                    int64_t windows) {
  const std::string path = absl::StrCat(directory, "/link-", from, ".json");
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  try {
    LinkStream link;
    link.from = json.at("from");
    link.to = json.at("to");
    link.seconds = json.at("seconds").get<std::vector<double>>();
    link.bytes = json.at("bytes").get<std::vector<double>>();
    link.round_trips = json.at("round_trips").get<std::vector<double>>();
    if (link.seconds.size() == link.bytes.size() &&
        link.seconds.size() >= static_cast<size_t>(windows)) {
      return link;
    }
  } catch (const nlohmann::json::exception&) {
  }
  return absl::DataLossError(absl::StrCat("the receiver of rank ", from,
                                          "'s stream has not written ", windows,
                                          " windows into ", path));
}

}  // namespace

absl::StatusOr<std::vector<LinkStream>> RunLinks(const Stage& stage, int ranks,
                                                 int64_t windows) {
  windows = std::min(windows, kMostWindows);
  auto dir = TempDir::Create();
  if (!dir.ok()) return dir.status();
  Job job;
  job.mode = "ring";
  job.workers = ranks;
  job.threads_per_worker = -1;
  job.security = stage.security;
  job.worker_binary = stage.rank_binary;
  job.worker_flags = {"--log-level=warn", "--op=link",
                      absl::StrCat("--iterations=", windows),
                      absl::StrCat("--out=", dir->path())};
  if (stage.hosts != nullptr) {
    job.coordinator_address = Hosts::AddressOf(0);
    for (int rank = 0; rank < ranks; ++rank) {
      job.worker_prefixes.push_back(stage.hosts->PrefixOf(rank));
    }
  }
  const absl::Status status = RunToEnd(stage, [&](Supervisor& supervisor) {
    return StartJob(job, supervisor).status();
  });
  if (!status.ok()) return status;
  std::vector<LinkStream> links;
  for (int from = 0; from < ranks; ++from) {
    auto link = ReadLink(dir->path(), from, windows);
    if (!link.ok()) return link.status();
    links.push_back(*std::move(link));
  }
  return links;
}

double SlowestLink(const std::vector<LinkStream>& links) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const LinkStream& link : links)
    slowest = std::min(slowest, LinkRate(link));
  return slowest;
}

}  // namespace psring
