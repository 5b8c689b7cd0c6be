#include "common/cluster/model_parts.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/process_names.h"
#include "common/net/address.h"
#include "common/printable.h"

namespace psring {
namespace {

// Where `process` listens and which memory it shares, as is said: others will
// connect there, and map that. On the address that it has joined with, and its
// own.
absl::Status CheckPart(const proto::Process& process,
                       const proto::ModelPart& part) {
  if (part.endpoints_size() > kMaxShardThreads) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(process), " says that it listens at ", part.endpoints_size(),
        " endpoints, but a server has at most ", kMaxShardThreads,
        ": as many as --shard-threads allows"));
  }
  for (const std::string& endpoint : part.endpoints()) {
    const auto address = ParseEndpoint(endpoint);
    if (address.ok() && address->port > 0 &&
        address->host == process.address()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(process), " says that it listens at '",
        Printable(endpoint, 64), "', which is not a port of its address, ",
        process.address()));
  }
  if (part.has_shared_memory() && part.shared_memory().pid() != process.pid()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(process), " is said to share the memory of pid ",
                     part.shared_memory().pid(), ", which is another process"));
  }
  return absl::OkStatus();
}

// Each part, and that memory is of one process: its random number tells whose.
// Who said another's had that one's pushes counted as its own.
absl::Status CheckParts(const Processes& processes,
                        const std::vector<proto::ModelPart>& parts) {
  std::map<uint64_t, int> owners;
  for (int i = 0; i < processes.size(); ++i) {
    if (absl::Status s = CheckPart(processes[i], parts[i]); !s.ok()) return s;
    if (!parts[i].has_shared_memory()) continue;
    const auto [owner, is_new] =
        owners.emplace(parts[i].shared_memory().nonce(), i);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(processes[owner->second]), " and ", Describe(processes[i]),
        " say that they share the same memory, which one of them owns"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<proto::ModelPart>> ReadParts(
    const std::string& name, absl::Span<const std::string> said,
    const Processes& processes) {
  if (static_cast<int>(said.size()) != processes.size()) {
    return absl::InternalError(absl::StrCat("the coordinator tells of ",
                                            said.size(), " parts of '", name,
                                            "', not of ", processes.size()));
  }
  std::vector<proto::ModelPart> parts(said.size());
  for (int i = 0; i < processes.size(); ++i) {
    if (!parts[i].ParseFromString(said[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(processes[i]), " says '", name, "' with a broken message"));
    }
  }
  if (absl::Status s = CheckParts(processes, parts); !s.ok()) return s;
  return parts;
}

absl::StatusOr<std::vector<proto::ModelPart>> ToldParts(
    const Processes& told, const Processes& processes) {
  if (told.size() != processes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is told of ", told.size(), " processes, not of ",
                     processes.size()));
  }
  std::vector<proto::ModelPart> parts(processes.size());
  for (int i = 0; i < processes.size(); ++i) {
    *parts[i].mutable_endpoints() = told[i].endpoints();
    parts[i].set_sum_device(told[i].sum_device());
    if (told[i].has_shared_memory()) {
      *parts[i].mutable_shared_memory() = told[i].shared_memory();
    }
  }
  if (absl::Status s = CheckParts(processes, parts); !s.ok()) return s;
  return parts;
}

void FillIn(std::vector<proto::ModelPart> parts, Processes* processes) {
  for (int i = 0; i < processes->size(); ++i) {
    proto::Process& process = *processes->Mutable(i);
    *process.mutable_endpoints() = std::move(*parts[i].mutable_endpoints());
    process.set_sum_device(parts[i].sum_device());
    if (!parts[i].has_shared_memory()) continue;
    *process.mutable_shared_memory() =
        std::move(*parts[i].mutable_shared_memory());
  }
}

}  // namespace psring
