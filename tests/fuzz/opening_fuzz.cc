// common/cluster/model_parts.h: what processes say of themselves, and of each
// other, when a model is opened. Whatever it is, nobody is made to connect
// elsewhere than to the job's processes.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/model_opening.h"
#include "common/cluster/model_parts.h"
#include "common/net/address.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr int kServers = 2;

const Processes& Job() {
  static const Processes processes = [] {
    Processes servers;
    for (int rank = 0; rank < kServers; ++rank) {
      proto::Process& server = *servers.Add();
      server.set_role(proto::PS);
      server.set_rank(rank);
      server.set_host(absl::StrCat("host", rank));
      server.set_address(rank == 0 ? "10.0.0.1" : "fd00::2");
      server.set_pid(4711 + rank);
    }
    return servers;
  }();
  return processes;
}

proto::ModelPart GoodPart(int rank) {
  proto::ModelPart part;
  part.add_endpoints(rank == 0 ? "tcp://10.0.0.1:7000" : "tcp://[fd00::2]:7");
  part.add_endpoints(rank == 0 ? "tcp://10.0.0.1:65535" : "tcp://[fd00::2]:8");
  part.mutable_shared_memory()->set_pid(4711 + rank);
  part.mutable_shared_memory()->set_fd(5);
  part.mutable_shared_memory()->set_size_bytes(4096);
  part.mutable_shared_memory()->add_doorbell_fds(9);
  return part;
}

void Check(const absl::StatusOr<std::vector<proto::ModelPart>>& parts) {
  if (!parts.ok()) return RequireReason(parts.status());
  Processes filled = Job();
  FillIn(*parts, &filled);
  for (int rank = 0; rank < kServers; ++rank) {
    const proto::Process& before = Job()[rank];
    proto::Process after = filled[rank];
    for (const std::string& endpoint : after.endpoints()) {
      const auto address = ParseEndpoint(endpoint);
      Require(address.ok() && address->host == before.address(),
              "it listens on its own address");
      Require(address->port > 0 && address->port < 65536, "on a port");
      Require(endpoint.find_first_of(" \t\n\x1b") == std::string::npos,
              "an endpoint can be printed");
    }
    if (after.has_shared_memory()) {
      Require(after.shared_memory().pid() == before.pid(),
              "it shares its own memory");
    }
    after.clear_endpoints();
    after.clear_shared_memory();
    after.clear_sum_device();
    Require(after.SerializeAsString() == before.SerializeAsString(),
            "nothing else of it is taken from the message");
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  Input said;
  said.Byte(0);
  proto::Welcome told;
  for (int rank = 0; rank < kServers; ++rank) {
    const proto::ModelPart part = GoodPart(rank);
    said.Text(part.SerializeAsString());
    proto::Process& server = *told.add_servers();
    *server.mutable_endpoints() = part.endpoints();
    *server.mutable_shared_memory() = part.shared_memory();
    server.set_sum_device("GPU-1");
  }
  seeds.push_back(said.bytes());
  seeds.push_back(Input().Byte(1).Rest(told.SerializeAsString()).bytes());
  told.set_model_id("model");
  for (const char* name : {"open model", "close model", "else"}) {
    seeds.push_back(
        Input().Byte(2).Text(name).Rest(told.SerializeAsString()).bytes());
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0: {
      std::vector<std::string> said;
      while (!input.empty()) said.push_back(input.Text());
      fuzz::Check(ReadParts("open model", said, fuzz::Job()));
      break;
    }
    case 1: {
      proto::Welcome told;
      if (!told.ParseFromString(input.Rest())) break;
      fuzz::Check(ToldParts(told.servers(), fuzz::Job()));
      break;
    }
    default: {
      proto::Announce announcement;
      announcement.set_name(input.Text());
      announcement.set_payload(input.Rest());
      const auto request = ParseModelRequest(announcement);
      if (!request.ok()) {
        fuzz::RequireReason(request.status());
        break;
      }
      const bool closes = request->kind == ModelRequest::Kind::kClose;
      fuzz::Require(
          absl::StartsWith(announcement.name(), closes ? "close " : "open "),
          "it does what it is named after");
      fuzz::Check(ToldParts(request->model.servers(), fuzz::Job()));
    }
  }
  return 0;
}
