#include "python/capi/script_model_options.h"

#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/layout.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/sync_policy.h"
#include "nlohmann/json.hpp"
#include "python/capi/json_options.h"

namespace psring {
namespace {

constexpr double kAnyRate = 1e9;

// Hyperparameters; the name is `name` unless it says its own.
absl::Status ParseOptimizer(const std::string& what,
                            const nlohmann::json& object,
                            proto::OptimizerSettings& settings) {
  JsonOptions options(what, object);
  std::string name = "sgd";
  double lr = 0.0, momentum = 0.0, decay = 0.0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool epsilon_hat = false;
  options.Text("name", name);
  options.Number("lr", lr, 0.0, kAnyRate);
  options.Number("momentum", momentum, 0.0, 1.0);
  options.Number("weight_decay", decay, 0.0, kAnyRate);
  options.Number("beta1", beta1, 0.0, 1.0);
  options.Number("beta2", beta2, 0.0, 1.0);
  options.Number("epsilon", epsilon, 0.0, kAnyRate);
  options.Flag("epsilon_hat", epsilon_hat);
  if (absl::Status s = options.Finish(); !s.ok()) return s;
  settings.set_name(name);
  settings.set_lr(lr);
  settings.set_momentum(momentum);
  settings.set_weight_decay(decay);
  settings.set_beta1(beta1);
  settings.set_beta2(beta2);
  settings.set_epsilon(epsilon);
  settings.set_epsilon_hat(epsilon_hat);
  settings.mutable_schedule()->set_kind("constant");
  return Optimizer::Create(settings).status();
}

absl::Status ParseTensors(const nlohmann::json& list, proto::JobSpec& spec) {
  for (const nlohmann::json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") ||
        !entry["name"].is_string() || !entry.contains("shape") ||
        !entry["shape"].is_array()) {
      return absl::InvalidArgumentError(
          "a model's tensors are objects with a name and a shape");
    }
    proto::TensorShape& tensor = *spec.add_tensors();
    tensor.set_name(entry["name"].get<std::string>());
    for (const nlohmann::json& size : entry["shape"]) {
      const std::optional<int64_t> number = WholeNumber(size);
      if (!number) {
        return absl::InvalidArgumentError(absl::StrCat("the shape of ",
                                                       tensor.name(),
                                                       " is no list of whole "
                                                       "numbers"));
      }
      tensor.add_shape(*number);
    }
  }
  return absl::OkStatus();
}

absl::Status ParseGroups(JsonOptions& options, proto::JobSpec& spec) {
  if (const nlohmann::json* one = options.Object("optimizer")) {
    if (absl::Status s =
            ParseOptimizer("optimizer", *one, *spec.mutable_optimizer());
        !s.ok()) {
      return s;
    }
  }
  if (const nlohmann::json* groups = options.Array("groups")) {
    for (const nlohmann::json& group : *groups) {
      if (absl::Status s =
              ParseOptimizer(absl::StrCat("group ", spec.groups_size()), group,
                             *spec.add_groups());
          !s.ok()) {
        return s;
      }
    }
    if (!groups->empty()) *spec.mutable_optimizer() = spec.groups(0);
  }
  if (const nlohmann::json* of_tensors = options.Array("tensor_groups")) {
    for (const nlohmann::json& group : *of_tensors) {
      const std::optional<int64_t> number = WholeNumber(group);
      if (!number || *number < 0 || *number >= kMaxGroups) {
        options.Fail("tensor_groups", "must be a list of groups' numbers");
        break;
      }
      spec.add_tensor_groups(static_cast<int>(*number));
    }
  }
  return absl::OkStatus();
}

std::set<std::string> SyncNames() {
  std::set<std::string> names;
  for (const SyncPolicy& policy : SyncPolicies()) names.insert(policy.name);
  return names;
}

void CheckBound(const SyncPolicy& policy, JsonOptions& options) {
  if (!TakesBound(policy) || options.Has("staleness")) return;
  options.Fail("staleness",
               absl::StrCat("is missing: sync=\"", policy.name,
                            "\" needs the steps that a worker may be ahead, "
                            "as in sync=\"",
                            NameWithBound(policy, "3"), "\""));
}

}  // namespace

std::string PoliciesAsJson() {
  nlohmann::json all = nlohmann::json::array();
  for (const SyncPolicy& policy : SyncPolicies()) {
    all.push_back({{"name", policy.name},
                   {"barrier", policy.barrier},
                   {"bounded", TakesBound(policy)}});
  }
  return all.dump();
}

absl::StatusOr<ScriptModelOptions> ParseModelOptions(const std::string& text,
                                                     proto::Mode mode) {
  auto options = JsonOptions::Parse("a model", text);
  if (!options.ok()) return options.status();
  std::string id = "model", update = "local", sync = "bsp", compress = "none";
  std::string device = "cpu", ring_backend = "auto";
  double bucket_mb = static_cast<double>(kDefaultBucketBytes) / (1 << 20);
  double compensation = 0.0;
  int64_t staleness = 0, updates = 0;
  int backup_workers = 0;
  bool staleness_lr = false, momenta = false;
  options->Text("id", id);
  options->OneOf("update", update, {"local", "fused"});
  options->OneOf("sync", sync, SyncNames());
  options->Text("compress", compress);
  options->Text("device", device);
  options->OneOf("ring_backend", ring_backend, {"auto", "host", "nccl"});
  options->Number("bucket_mb", bucket_mb, 1e-5, 1024.0);
  options->Integer("staleness", staleness, 0, 1000000);
  options->Integer("backup_workers", backup_workers, 0, 4095);
  options->Flag("staleness_lr", staleness_lr);
  options->Flag("momenta", momenta);
  options->Number("delay_compensation", compensation, 0.0, 1e9);
  options->Integer("updates", updates, 0, std::numeric_limits<int64_t>::max());
  const SyncPolicy* policy = FindSyncPolicy(sync);
  if (policy != nullptr) CheckBound(*policy, *options);
  proto::JobSpec spec;
  const nlohmann::json* tensors = options->Array("tensors");
  if (tensors == nullptr) options->Fail("tensors", "is missing");
  if (absl::Status s = ParseGroups(*options, spec); !s.ok()) return s;
  if (absl::Status s = options->Finish(); !s.ok()) return s;
  const auto gpu = ParseScriptDevice(device);
  if (!gpu.ok()) return gpu.status();
  if (absl::Status s = ParseTensors(*tensors, spec); !s.ok()) return s;
  if (!spec.has_optimizer()) {
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->mutable_schedule()->set_kind("constant");
  }
  spec.set_mode(mode);
  spec.set_model(id);
  spec.set_data("the script's");
  spec.set_mean_only(update == "local");
  spec.set_rates_from_workers(update == "fused");
  spec.set_momenta_from_workers(update == "fused" && momenta);
  spec.set_sync(policy->sync);
  spec.set_staleness(staleness);
  spec.set_backup_workers(backup_workers);
  spec.set_staleness_lr(staleness_lr);
  spec.set_delay_compensation(compensation);
  spec.set_compress(compress);
  spec.set_bucket_bytes(static_cast<int64_t>(bucket_mb * (1 << 20)));
  spec.set_first_updates(updates);
  spec.set_local_steps(1);
  spec.set_ring_backend(mode == proto::RING ? "host" : "");
  return ScriptModelOptions{std::move(spec), {*gpu, ring_backend}};
}

}  // namespace psring
