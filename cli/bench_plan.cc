#include "cli/bench_plan.h"

#include <iostream>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/version.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/available_memory.h"
#include "gpu/device.h"
#include "lab/bench/pattern.h"
#include "lab/bench/peers.h"
#include "lab/host/gpu_info.h"
#include "lab/host/units.h"
#include "lab/page/format.h"

namespace psring {
namespace {

constexpr char kExample[] =
    "The limit on one host is a concurrent memory copy, between hosts the "
    "links; the same\nrun measures it. Open MPI, Intel MPI, oneCCL, Gloo and "
    "ps-lite are measured too\nwhere they are installed.\n"
    "Examples:\n"
    "  psring bench allreduce --sizes=1KB,1MB,100MB --ranks=2,4\n"
    "  psring bench allreduce pushpull links --hosts=4 --link=1gbit   (root)\n"
    "  psring bench train\n"
    "  psring bench train --models=resnet50 --precision=fp32,tf32,bf16 "
    "--batch-size=256 \\\n"
    "    --data=synthetic:3x224x224,classes=1000,train=4096";

// The operations that are measured at every one of --sizes.
constexpr const char* kSweeps[] = {"allreduce", "pushpull"};

// The operations that a flag has an effect on.
struct FlagUse {
  const char* flag;
  std::vector<std::string> operations;
};

absl::Status CheckFlagsAreUsed(const CommandLine& line,
                               const std::vector<std::string>& operations) {
  const std::vector<std::string> sweeps(std::begin(kSweeps), std::end(kSweeps));
  const std::vector<FlagUse> all = {
      {"--sizes", sweeps},
      {"--ranks", {"allreduce", "pushpull", "links"}},
      {"--servers", {"pushpull", "train"}},
      {"--iterations", {"allreduce", "pushpull", "links"}},
      {"--warmup", sweeps},
      {"--rounds", sweeps},
      {"--optimizer", {"pushpull"}},
      {"--hot", sweeps},
      {"--peers", sweeps},
      {"--ps-lite", {"pushpull"}},
      {"--models", {"train"}},
      {"--modes", {"train"}},
      {"--precision", {"train"}},
      {"--data", {"train"}},
      {"--batch-size", {"train"}},
      {"--workers", {"train"}},
      {"--device", {"train"}},
      {"--steps", {"train"}},
      {"--repetitions", {"train"}},
  };
  for (const FlagUse& use : all) {
    const bool is_used =
        absl::c_any_of(use.operations, [&](const std::string& operation) {
          return absl::c_linear_search(operations, operation);
        });
    if (is_used || !line.Has(use.flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(use.flag, " is for ", absl::StrJoin(use.operations, ", "),
                     ", and this run measures ",
                     absl::StrJoin(operations, ", "), ": leave it out"));
  }
  return absl::OkStatus();
}

void AddSweepFlags(CommandLine& line, BenchFlags& flags) {
  line.Add("--sizes", flags.sizes,
           "Sizes of each rank's buffer; 1KB is 1000 bytes");
  line.Add("--ranks", flags.ranks,
           "Numbers of ranks, of which links takes the largest; with --hosts, "
           "one a host");
  line.Add("--servers", flags.options.servers,
           "Number of servers of pushpull and ps-bsp")
      .Range(1, kMaxRanks);
  line.Add("--iterations", flags.options.iterations,
           "Timed iterations at each size, at least; small sizes get more")
      .Range(20, 1000000);
  line.Add("--warmup", flags.options.warmup, "Iterations before the timed ones")
      .Range(0, 1000000);
  line.Add("--rounds", flags.options.rounds,
           "Rounds at each size, in which all contenders take turns; the "
           "iterations are shared out among them")
      .Range(1, 20);
  line.Add("--optimizer", flags.options.optimizer,
           "The servers' optimizer in pushpull")
      .OneOf({"sgd", "momentum"});
  line.Add("--hot", flags.options.hot,
           "Iterations back to back on the same buffers, which so stay in the "
           "caches; otherwise buffers are written anew before each, and all "
           "ranks start at one instant");
  line.Add(
      "--peers", flags.peers,
      "Whom to compare with: auto (all that are installed), none, or a list "
      "of openmpi,intelmpi,oneccl,gloo (allreduce) and ps-lite (pushpull)");
  line.Add("--ps-lite", flags.options.ps_lite,
           "Folder of a built ps-lite, to compare pushpull with it");
}

// Where and with how many ranks and servers it runs.
absl::Status PlanHosts(const CommandLine& line, const std::string& placement,
                       BenchOptions* options) {
  if (options->hosts == 0) {
    for (const char* flag : {"--link", "--placement"}) {
      if (line.Has(flag)) {
        return absl::InvalidArgumentError(absl::StrCat(flag, " needs --hosts"));
      }
    }
    return absl::OkStatus();
  }
  if (absl::c_linear_search(options->operations, "train")) {
    return absl::InvalidArgumentError(
        "train runs on one host, without --hosts");
  }
  if (!line.Has("--ranks")) options->ranks = {options->hosts};
  for (const int ranks : options->ranks) {
    if (ranks == options->hosts) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks: ", ranks, ", but each host of --hosts=", options->hosts,
        " has exactly one rank"));
  }
  if (placement == "separate") {
    options->server_hosts = options->servers;
    return absl::OkStatus();
  }
  if (line.Has("--servers") && options->servers != options->hosts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers: ", options->servers,
        ", but --placement=colocated puts one server on each host; "
        "choose --placement=separate"));
  }
  options->placement = Placement::kColocated;
  options->servers = options->hosts;
  return absl::OkStatus();
}

// `what`: of what kind the text is, before the known words.
absl::StatusOr<std::vector<std::string>> ParseList(
    const std::string& text, const std::vector<std::string>& known,
    absl::string_view what = "a list of ") {
  std::vector<std::string> words = absl::StrSplit(text, ',');
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (!absl::c_linear_search(known, word)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", word, "\" is not ", what, absl::StrJoin(known, ",")));
    }
    if (!seen.insert(word).second) {
      return absl::InvalidArgumentError(absl::StrCat(word, " comes twice"));
    }
  }
  return words;
}

absl::StatusOr<std::vector<std::string>> ParsePeers(const std::string& text) {
  const std::vector<std::string> known = {kOpenMpi, kIntelMpi, kOneCcl, kGloo,
                                          kPsLite};
  if (text == "auto") return known;
  if (text == "none") return std::vector<std::string>();
  return ParseList(text, known, "auto, none or a list of ");
}

// A peer that the user has named is measured in one of the operations.
absl::Status CheckPeersAreUsed(const std::vector<std::string>& peers,
                               const std::vector<std::string>& operations) {
  for (const std::string& peer : peers) {
    const char* const its = peer == kPsLite ? "pushpull" : "allreduce";
    if (absl::c_linear_search(operations, its)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--peers: ", peer, " is for ", its, ", and this run measures ",
        absl::StrJoin(operations, ", "), ": leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckHot(const std::vector<int>& ranks) {
  for (const int n : ranks) {
    if (MaxExactRuns(n) >= 4) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--hot: sums in place that follow one another are not exact, and so "
        "cannot be verified, with ",
        n, " ranks; choose up to 12, or 16 or 32"));
  }
  return absl::OkStatus();
}

std::string TrainDevice(const std::string& wish, const BenchOptions& options) {
  if (wish != "auto") return wish;
  if (!absl::c_linear_search(options.operations, "train")) return "cpu";
  const auto gpus = ListCudaDevices();
  if (!gpus.ok()) return "cpu";
  const int workers = *absl::c_max_element(options.workers);
  const auto num_gpus = static_cast<int>(gpus->size());
  std::string why;
  if (CommonDevice(workers, num_gpus) == "cpu") {
    why =
        absl::StrCat(workers, " workers on a host with ", num_gpus, " GPU(s)");
  } else if (const auto torch = FindLibtorch(options.binaries.worker);
             torch.ok() && torch->cuda == "none") {
    why = absl::StrCat("libtorch ", torch->version,
                       " has no CUDA, although this host has a GPU");
  }
  if (why.empty()) return "cuda";
  std::cerr << "psring bench: " << why << ": all train on the CPU" << std::endl;
  return "cpu";
}

}  // namespace

void AddBenchFlags(CommandLine& line, BenchFlags& flags) {
  line.Add("operation", flags.options.operations,
           "What to measure, one or more: allreduce, pushpull, train, links")
      .Required()
      .OneOf({"allreduce", "pushpull", "train", "links"});
  AddSweepFlags(line, flags);
  line.Add("--hosts", flags.options.hosts,
           "Number of hosts to make of network namespaces, with a worker each "
           "(needs root)")
      .Range(2, 64);
  line.Add("--link", flags.link, "Rate of each host's link, such as 100mbit");
  line.Add("--placement", flags.placement,
           "With --hosts: colocated puts a server on each worker's host, "
           "separate "
           "puts --servers of them on hosts of their own")
      .OneOf({"colocated", "separate"});
  line.Add("--models", flags.models,
           "Models to train; see psring worker --help");
  line.Add("--modes", flags.modes,
           "Ways to train: a list of ring, ps-bsp and ddp (PyTorch's "
           "DistributedDataParallel, where there is a torch)");
  line.Add("--precision", flags.precisions,
           "What to compute in, psring and DDP alike: a list of fp32, tf32, "
           "bf16 and fp16; see psring worker --help. All but fp32 with "
           "channels last");
  line.Add("--data", flags.options.data,
           "What to train on; see psring worker --help. DDP takes random "
           "images of the same shape");
  line.Add("--batch-size", flags.options.batch_size,
           "Samples a step, per worker")
      .Range(1, 65536);
  line.Add("--workers", flags.workers, "Numbers of workers to train with");
  line.Add(
          "--device", flags.device,
          "Where to train, psring and DDP alike: cpu, cuda (DDP over NCCL), or "
          "auto: cuda where every worker has a GPU of its own")
      .OneOf({"auto", "cpu", "cuda"});
  line.Add("--steps", flags.options.steps,
           "Timed steps of each training; more where these are too short for a "
           "rate")
      .Range(1, 1000000);
  line.Add("--repetitions", flags.options.repetitions,
           "Repetitions of each training")
      .Range(1, 100);
  line.Add("--timeout", flags.timeout_s,
           "Seconds after which a single run is given up")
      .Range(1.0, 86400.0);
  line.Add("--out", flags.out, "Folder for bench.html and bench.json");
  line.Add("--insecure", flags.insecure,
           "No key: measure messages that are neither encrypted nor proven");
  AddBinaryFlags(line, flags.options.binaries);
  line.Footer(kExample);
}

// Of the largest exchange, lest the kernel end whoever has most. Every rank
// holds gradients and parameters, or what it sends and what comes.
absl::Status CheckMemory(const BenchOptions& options) {
  const bool exchanges = absl::c_any_of(
      options.operations,
      [](const std::string& op) { return absl::c_linear_search(kSweeps, op); });
  const int ranks = *absl::c_max_element(options.ranks);
  const int64_t size = *absl::c_max_element(options.sizes);
  const double needed = 2.0 * ranks * static_cast<double>(size);
  const auto available = static_cast<double>(AvailableMemory());
  if (!exchanges || needed <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--sizes: ", ranks, " ranks with ", FormatSize(size), " each need ",
      FormatBytes(needed), " of memory, and ", FormatBytes(available),
      " are free: give smaller --sizes, or fewer --ranks"));
}

absl::StatusOr<BenchOptions> PlanBench(const CommandLine& line,
                                       const BenchFlags& flags) {
  if (absl::Status s = CheckFlagsAreUsed(line, flags.options.operations);
      !s.ok()) {
    return s;
  }
  auto sizes = ParseSizes(flags.sizes);
  if (!sizes.ok()) return OfFlag("--sizes", sizes.status());
  auto ranks = ParseNumbers(flags.ranks, 2, kMaxRanks);
  if (!ranks.ok()) return OfFlag("--ranks", ranks.status());
  auto workers = ParseNumbers(flags.workers, 1, kMaxRanks);
  if (!workers.ok()) return OfFlag("--workers", workers.status());
  const auto rate = ParseRate(flags.link);
  if (!rate.ok()) return OfFlag("--link", rate.status());
  auto peers = ParsePeers(flags.peers);
  if (!peers.ok()) return OfFlag("--peers", peers.status());
  BenchOptions options = flags.options;
  options.sizes = *std::move(sizes);
  options.ranks = *std::move(ranks);
  if (absl::Status s = CheckMemory(options); !s.ok()) return s;
  options.workers = *std::move(workers);
  options.models = absl::StrSplit(flags.models, ',');
  auto modes = ParseList(flags.modes, {"ring", "ps-bsp", "ddp"});
  if (!modes.ok()) return OfFlag("--modes", modes.status());
  options.modes = *std::move(modes);
  options.modes_named = line.Has("--modes");
  auto precisions =
      ParseList(flags.precisions, {"fp32", "tf32", "bf16", "fp16"});
  if (!precisions.ok()) return OfFlag("--precision", precisions.status());
  options.precisions = *std::move(precisions);
  options.link_bits_per_s = *rate;
  options.peers = *std::move(peers);
  options.peers_named = flags.peers != "auto";
  if (options.peers_named) {
    absl::Status s = CheckPeersAreUsed(options.peers, options.operations);
    if (!s.ok()) return s;
  }
  options.device = TrainDevice(flags.device, options);
  for (const std::string& precision : options.precisions) {
    if (options.device == "cuda" || precision == "fp32" ||
        precision == "bf16") {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--precision=", precision,
                     " needs GPUs; on CPUs there are fp32 and bf16"));
  }
  options.timeout = absl::Seconds(flags.timeout_s);
  auto security = NewSecurity({.insecure = flags.insecure}, ReadVariables());
  if (!security.ok()) return security.status();
  options.security = *std::move(security);
  if (!options.ps_lite.empty()) {
    absl::Status s = CheckPsLiteTree(options.ps_lite);
    if (!s.ok()) return OfFlag("--ps-lite", s);
  }
  absl::Status s = PlanHosts(line, flags.placement, &options);
  if (s.ok() && options.hot) s = CheckHot(options.ranks);
  if (!s.ok()) return s;
  return options;
}

}  // namespace psring
