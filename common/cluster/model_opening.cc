#include "common/cluster/model_opening.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/cluster/spec_difference.h"
#include "common/fnv.h"

namespace psring {
namespace {

using Processes = google::protobuf::RepeatedPtrField<proto::Process>;

constexpr char kOpen[] = "open ";
constexpr char kClose[] = "close ";
constexpr char kServed[] = "served ";

// Servers give up first: they know which of them is missing.
constexpr absl::Duration kServersFirst = absl::Seconds(5);

// A number that names this model in data frames.
uint64_t EpochOf(uint64_t job_epoch, const std::string& id) {
  return Fnv().Add(job_epoch).Add(id).value();
}

absl::StatusOr<std::vector<proto::ModelPart>> GatherParts(
    Member& member, const std::string& id, const proto::ModelPart& part,
    Time deadline) {
  const auto all =
      member.Gather(kOpen + id, part.SerializeAsString(), deadline);
  if (!all.ok()) return all.status();
  const bool worker = member.is_worker();
  const int expected =
      worker ? member.job().workers_size() : member.job().servers_size();
  if (static_cast<int>(all->size()) != expected) {
    return absl::InternalError(absl::StrCat("the coordinator tells of ",
                                            all->size(), " parts of '", id,
                                            "', not of ", expected));
  }
  std::vector<proto::ModelPart> parts(all->size());
  for (size_t i = 0; i < all->size(); ++i) {
    if (parts[i].ParseFromString((*all)[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "process ", i, " of this role opens '", id, "' with a broken message"));
  }
  return parts;
}

void FillIn(std::vector<proto::ModelPart> parts, Processes* processes) {
  for (int i = 0; i < processes->size(); ++i) {
    proto::Process& process = *processes->Mutable(i);
    *process.mutable_endpoints() = std::move(*parts[i].mutable_endpoints());
    if (!parts[i].has_shared_memory()) continue;
    *process.mutable_shared_memory() =
        std::move(*parts[i].mutable_shared_memory());
  }
}

absl::Status CheckSpecs(const proto::Welcome& job,
                        const std::vector<proto::ModelPart>& parts) {
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto difference = SpecDifference(parts[i].spec(), parts[0].spec());
    if (!difference) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(job.workers(static_cast<int>(i))),
                     " does not agree with worker 0: ", *difference));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::Welcome> OpenModel(Member& member, const std::string& id,
                                         const proto::ModelPart& part,
                                         Time deadline) {
  auto parts = GatherParts(member, id, part, deadline);
  if (!parts.ok()) return parts.status();
  proto::Welcome model = member.job();
  if (absl::Status s = CheckSpecs(model, *parts); !s.ok()) return s;
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
  for (const proto::Process& server : served.servers()) {
    if (server.endpoints_size() > 0) continue;
    return absl::InternalError(absl::StrCat(
        Describe(server), " listens nowhere for its part of '", id, "'"));
  }
  *model.mutable_servers() = served.servers();
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
      absl::StrCat("'", name, "' neither opens nor closes a model"));
}

absl::StatusOr<proto::Welcome> AnswerModel(Member& member,
                                           const proto::Welcome& model,
                                           const proto::ModelPart& part,
                                           Time deadline) {
  auto parts = GatherParts(member, model.model_id(), part, deadline);
  if (!parts.ok()) return parts.status();
  proto::Welcome served = model;
  served.set_rank(member.job().rank());
  FillIn(*std::move(parts), served.mutable_servers());
  if (served.rank() == 0) {
    proto::Welcome answer;
    *answer.mutable_servers() = served.servers();
    member.Announce(proto::WORKER, kServed + model.model_id(),
                    answer.SerializeAsString());
  }
  return served;
}

}  // namespace psring
