// The C interface's options, which are JSON: psring_join's and
// psring_open_model's.
#include <utility>

#include "common/cluster/script_placement.h"
#include "common/model/layout.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "protos/cluster.pb.h"
#include "python/capi/json_options.h"
#include "python/capi/script_model_options.h"
#include "python/capi/session_options.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

void ParseSession(const std::string& text) {
  const auto options = ParseSessionOptions(text);
  if (!options.ok()) return RequireReason(options.status());
  Require(options->step_timeout >= absl::Seconds(1) &&
              options->step_timeout <= absl::Hours(24),
          "a wait has a deadline");
  const auto placed = PlaceScript(options->wish, {});
  if (!placed.ok()) return RequireReason(placed.status());
  Require(placed->rank >= 0 && placed->rank < placed->num_workers,
          "a script has a place in its job");
}

void OpenModel(const std::string& text, proto::Mode mode) {
  const auto options = ParseModelOptions(text, mode);
  if (!options.ok()) return RequireReason(options.status());
  const proto::JobSpec* const spec = &options->spec;
  proto::JobSpec sent;
  Require(sent.ParseFromString(spec->SerializeAsString()),
          "what servers are told can be read");
  if (absl::Status s = CheckPolicies(*spec, 2); !s.ok()) {
    return RequireReason(s);
  }
  const auto layout = Layout::Create(
      {spec->tensors().begin(), spec->tensors().end()}, spec->bucket_bytes());
  if (!layout.ok()) return RequireReason(layout.status());
  const auto optimizer = Optimizer::ForJob(*spec, spec->optimizer(), *layout);
  if (!optimizer.ok()) RequireReason(optimizer.status());
}

void ReadOptions(const std::string& text) {
  auto options = JsonOptions::Parse("what", text);
  if (!options.ok()) return RequireReason(options.status());
  int number = 5;
  int64_t wide = 5;
  double real = 0.5;
  std::string word = "a";
  options->Integer("number", number, 0, 10);
  options->Integer("wide", wide, -10, 10);
  options->Number("real", real, -1.0, 1.0);
  options->OneOf("word", word, {"a", "b"});
  const absl::Status status = options->Finish();
  if (!status.ok()) return RequireReason(status);
  Require(number >= 0 && number <= 10 && wide >= -10 && wide <= 10,
          "numbers are within their bounds");
  Require(real >= -1 && real <= 1, "real ones too");
  Require(word == "a" || word == "b", "words are those that are allowed");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string tensors =
      R"("tensors":[{"name":"w","shape":[10,3]},{"name":"b","shape":[]}])";
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  std::string session =
      R"(.{"mode":"ps","servers":2,"rank":1,"size":4,"coordinator":"a:7000",
             "own_servers":false,"step_timeout_s":2.5,"log_level":"warn"})";
  session[0] = '\0';
  return {
      session,
      "\1{" + tensors + R"(,"id":"m","update":"local","bucket_mb":0.5})",
      "\2{" + tensors +
          R"(,"update":"fused","sync":"ssp","staleness":3,"compress":"int8",
             "groups":[{"name":"adam","lr":0.1},{"name":"adam","lr":1e-3}],
             "tensor_groups":[0,1],"step":7})",
      "\2{" + tensors +
          R"(,"optimizer":{"name":"momentum","lr":1,"momentum":0.9,
             "weight_decay":1e-4}})",
      R"({"number":7,"wide":-3,"real":0.25,"word":"b"})",
      "\3{\"number\":" + deep + "}",
      "\3{\"real\":" + deep + "}",
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(4)) {
    case 0:
      fuzz::ParseSession(input.Rest());
      break;
    case 1:
      fuzz::OpenModel(input.Rest(), proto::RING);
      break;
    case 2:
      fuzz::OpenModel(input.Rest(), proto::PARAMETER_SERVER);
      break;
    default:
      fuzz::ReadOptions(input.Rest());
  }
  return 0;
}
