#include "ring/nccl/nccl_peers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cluster/host_of.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

constexpr size_t kMaxBusIdBytes = 64;

absl::StatusOr<NcclPeer> Decode(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '\n');
  NcclPeer peer;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &peer.version) ||
      parts[1].size() > kMaxBusIdBytes ||
      !std::all_of(parts[1].begin(), parts[1].end(), absl::ascii_isgraph) ||
      parts[2].size() != 2 * sizeof(peer.id) ||
      !std::all_of(parts[2].begin(), parts[2].end(), absl::ascii_isxdigit)) {
    return absl::InternalError("what it says of its NCCL cannot be read");
  }
  peer.bus_id = parts[1];
  const std::string id = absl::HexStringToBytes(parts[2]);
  std::memcpy(&peer.id, id.data(), sizeof(peer.id));
  return peer;
}

}  // namespace

std::string EncodeNcclPeer(const NcclPeer& peer) {
  return absl::StrCat(
      peer.version, "\n", peer.bus_id, "\n",
      absl::BytesToHexString({peer.id.bytes, sizeof(peer.id.bytes)}));
}

absl::StatusOr<NcclId> AgreeOnNcclId(absl::Span<const std::string> texts,
                                     const proto::Welcome& job,
                                     bool allow_shared_gpu) {
  if (texts.size() != static_cast<size_t>(job.workers_size())) {
    return absl::InternalError(
        absl::StrCat(texts.size(), " of ", job.workers_size(),
                     " workers have said which NCCL they have"));
  }
  NcclPeer first;
  std::map<std::pair<HostId, std::string>, int> gpus;  // to their ranks
  for (int r = 0; r < static_cast<int>(texts.size()); ++r) {
    const proto::Process& process = job.workers(r);
    const absl::StatusOr<NcclPeer> peer = Decode(texts[r]);
    if (!peer.ok()) {
      return absl::InternalError(absl::StrCat(
          Describe(process), ": ", std::string(peer.status().message())));
    }
    if (r == 0) first = *peer;
    if (peer->version != first.version) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(job.workers(0)), " has NCCL ",
          NcclVersionName(first.version), ", ", Describe(process), " has ",
          NcclVersionName(peer->version), "; install the same on both"));
    }
    const auto [gpu, is_new] =
        gpus.emplace(std::make_pair(HostOf(process), peer->bus_id), r);
    if (!is_new && !allow_shared_gpu) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(job.workers(gpu->second)), " and ", Describe(process),
          " are on one GPU (", peer->bus_id,
          "), which NCCL refuses, also where they have slices of it (MIG); "
          "start one worker a GPU, sum on the host with --ring-backend=host, "
          "or, for a trial, pass --allow-shared-gpu"));
    }
  }
  return first.id;
}

}  // namespace psring
