#include "common/cluster/model_opening.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/figures.h"
#include "common/cluster/model_parts.h"
#include "common/cluster/process_names.h"
#include "common/cluster/spec_difference.h"
#include "common/fnv.h"

namespace psring {
namespace {

constexpr char kOpen[] = "open ";
constexpr char kClose[] = "close ";
constexpr char kServed[] = "served ";
constexpr char kDiffer[] = "differ ";

// Servers give up first: they know which of them is missing.
constexpr absl::Duration kServersFirst = absl::Seconds(5);

// A number that names this model in data frames.
uint64_t EpochOf(uint64_t job_epoch, const std::string& id) {
  return Fnv().Add(job_epoch).Add(id).value();
}

// Equal for equal settings.
uint64_t DigestOf(const proto::JobSpec& spec) {
  return Fnv().Add(spec.SerializeAsString()).value();
}

absl::StatusOr<std::vector<proto::ModelPart>> GatherParts(
    Member& member, const std::string& name, const proto::ModelPart& part,
    Time deadline) {
  const auto all = member.Gather(name, part.SerializeAsString(), deadline);
  if (!all.ok()) return all.status();
  return ReadParts(
      name, *all,
      member.is_worker() ? member.job().workers() : member.job().servers());
}

// The first few workers whose settings differ from those of all before them:
// a model's settings may take megabytes, and a message has room for 16.
std::vector<int> WhoDiffer(const std::vector<proto::ModelPart>& parts) {
  constexpr size_t kMost = 4;
  std::vector<int> first;
  for (size_t i = 0; i < parts.size() && first.size() < kMost; ++i) {
    const bool known =
        std::any_of(first.begin(), first.end(), [&](const int worker) {
          return parts[worker].spec_digest() == parts[i].spec_digest();
        });
    if (!known) first.push_back(static_cast<int>(i));
  }
  return first;
}

// Only where workers differ are settings sent around.
absl::Status CheckSpecs(Member& member, const std::string& id,
                        const std::vector<proto::ModelPart>& parts,
                        const proto::JobSpec& mine, Time deadline) {
  const std::vector<int> differ = WhoDiffer(parts);
  if (differ.size() == 1) return absl::OkStatus();
  proto::ModelPart whole;
  const int me = member.job().rank();
  if (std::find(differ.begin(), differ.end(), me) != differ.end()) {
    *whole.mutable_spec() = mine;
  }
  const auto all = GatherParts(member, kDiffer + id, whole, deadline);
  if (!all.ok()) return all.status();
  for (const int worker : differ) {
    const auto difference =
        SpecDifference((*all)[worker].spec(), (*all)[0].spec(),
                       absl::StrCat("in worker ", worker), "in worker 0");
    if (!difference) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(member.job().workers(worker)),
                     " does not agree with worker 0: ", *difference));
  }
  return absl::OkStatus();  // in nothing that matters
}

}  // namespace

absl::StatusOr<proto::Welcome> OpenModel(Member& member, const std::string& id,
                                         const proto::ModelPart& part,
                                         Time deadline) {
  // Others could not read it.
  if (!proto::JobSpec().ParseFromString(part.spec().SerializeAsString())) {
    return absl::InvalidArgumentError(
        "a name in this worker's settings (a file's or a tensor's) is not "
        "UTF-8: rename it");
  }
  proto::ModelPart mine = part;
  mine.set_spec_digest(DigestOf(part.spec()));
  mine.clear_spec();  // whoever agrees has it
  auto parts = GatherParts(member, kOpen + id, mine, deadline);
  if (!parts.ok()) return parts.status();
  if (absl::Status s = CheckSpecs(member, id, *parts, part.spec(), deadline);
      !s.ok()) {
    return s;
  }
  proto::Welcome model = member.job();
  model.set_job_epoch(EpochOf(model.job_epoch(), id));
  model.set_model_id(id);
  *model.mutable_spec() = part.spec();
  FillIn(*std::move(parts), model.mutable_workers());
  if (model.servers().empty()) return model;
  if (model.rank() == 0) {
    member.Announce(proto::PS, kOpen + id, model.SerializeAsString());
  }
  auto answer =
      member.AwaitAnnouncement(kServed + id, deadline + kServersFirst);
  if (!answer.ok()) return answer.status();
  proto::Welcome served;
  if (!served.ParseFromString(*answer) ||
      served.servers_size() != model.servers_size()) {
    return absl::InternalError(
        absl::StrCat("server 0 has opened '", id, "' with a broken message"));
  }
  auto servers = ToldParts(served.servers(), model.servers());
  if (!servers.ok()) return servers.status();
  for (int s = 0; s < model.servers_size(); ++s) {
    if ((*servers)[s].endpoints_size() > 0) continue;
    return absl::InternalError(
        absl::StrCat(Describe(model.servers(s)),
                     " listens nowhere for its part of '", id, "'"));
  }
  FillIn(*std::move(servers), model.mutable_servers());
  return model;
}

absl::Status CloseModel(Member& member, const std::string& id, Time deadline) {
  const auto all = member.Gather(kClose + id, "", deadline);
  if (!all.ok()) return all.status();
  if (member.job().rank() == 0 && !member.job().servers().empty()) {
    member.Announce(proto::PS, kClose + id, "");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelRequest> ParseModelRequest(
    const proto::Announce& announcement) {
  ModelRequest request;
  const std::string& name = announcement.name();
  if (absl::StartsWith(name, kClose)) {
    request.kind = ModelRequest::Kind::kClose;
    request.model.set_model_id(name.substr(sizeof(kClose) - 1));
    return request;
  }
  if (absl::StartsWith(name, kOpen) &&
      request.model.ParseFromString(announcement.payload())) {
    return request;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", CleanWord(name), "' neither opens nor closes a model"));
}

absl::StatusOr<proto::Welcome> AnswerModel(Member& member,
                                           const proto::Welcome& model,
                                           const proto::ModelPart& part,
                                           Time deadline) {
  auto workers = ToldParts(model.workers(), member.job().workers());
  if (!workers.ok()) return workers.status();
  auto servers = GatherParts(member, kOpen + model.model_id(), part, deadline);
  if (!servers.ok()) return servers.status();
  proto::Welcome served = member.job();
  served.set_job_epoch(model.job_epoch());
  served.set_model_id(model.model_id());
  *served.mutable_spec() = model.spec();
  FillIn(*std::move(workers), served.mutable_workers());
  FillIn(*std::move(servers), served.mutable_servers());
  if (served.rank() == 0) {
    proto::Welcome answer;
    *answer.mutable_servers() = served.servers();
    member.Announce(proto::WORKER, kServed + model.model_id(),
                    answer.SerializeAsString());
  }
  return served;
}

}  // namespace psring
