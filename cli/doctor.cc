#include "cli/doctor.h"

#include <google/protobuf/stubs/common.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/findings.h"
#include "cli/version.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/net/available_memory.h"
#include "common/net/zmq_info.h"
#include "gpu/device.h"
#include "lab/host/gpu_info.h"
#include "lab/host/machine.h"
#include "lab/host/torch_location.h"
#include "lab/page/format.h"

namespace psring {
namespace {

using Kind = Finding::Kind;

constexpr char kDescription[] =
    "Prints what this host has: libraries, GPUs, cores, memory, the key, and "
    "the address that a process here would advertise. Exits with 1 when "
    "something that psring needs is missing.";

constexpr char kExample[] =
    "Example: which address would others reach this host at?\n"
    "  psring doctor --coordinator=10.0.0.1:7000";

Finding Good(std::string subject, std::string what) {
  return {Kind::kGood, std::move(subject), std::move(what), ""};
}

Finding Absent(std::string subject, std::string what) {
  return {Kind::kAbsent, std::move(subject), std::move(what), ""};
}

struct DoctorFlags {
  Binaries binaries;
  std::string coordinator;
  AddressWish wish;
};

// The wheel or the bundle that has this program as bin/cli/psring; a clone's
// lies elsewhere.
std::filesystem::path Package() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path().parent_path().parent_path();
}

bool IsOfWheel() {
  std::error_code error;
  return std::filesystem::exists(Package() / "lib" / "libpsring.so", error);
}

// Of the libtorch that this bundle needs; empty where this is none.
std::string BundleVersion() {
  std::ifstream file(Package() / "libtorch-version");
  std::string version;
  std::getline(file, version);
  return version;
}

Finding Torch(const std::string& worker_binary) {
  if (IsOfWheel()) {
    return Absent("trainer",
                  "none in the wheel, whose scripts bring their own torch: "
                  "worker, launch, and compare without a script need a clone "
                  "of psring and ./psring there");
  }
  return AboutTorch(FindLibtorch(worker_binary),
                    std::string(absl::StripSuffix(kTorchLocation, "\n")),
                    BundleVersion());
}

Finding Server(const std::string& ps_binary) {
  if (access(ps_binary.c_str(), X_OK) == 0) {
    return Good("psring", BuiltCommit());
  }
  return {Kind::kFault, "psring", absl::StrCat(ps_binary, " is missing"),
          BundleVersion().empty() ? kRebuild : "unpack the bundle again"};
}

Finding Zmq() {
  return Good("ZeroMQ",
              absl::StrCat(ZmqVersion(), ZmqHasCurve() ? ", with" : ", without",
                           " CURVE (encryption)"));
}

Finding Protobuf() {
  return Good("protobuf", google::protobuf::internal::VersionString(
                              GOOGLE_PROTOBUF_VERSION));
}

Finding Cuda() {
  const auto cuda = FindCuda();
  if (!cuda) return Absent("CUDA", "no driver: trains on CPUs");
  return Good(
      "CUDA",
      absl::StrCat("driver for ", cuda->driver_version, ", ", cuda->num_devices,
                   " device(s); this build uses: ", BuiltCudaVersion()));
}

Finding Nccl() {
  const auto nccl = FindNccl();
  if (!nccl) return Absent("NCCL", "none");
  return Good("NCCL", *nccl);
}

Finding Key() {
  const auto security = FindSecurity({}, ReadVariables());
  if (!security.ok()) {
    const std::vector<std::string> parts = absl::StrSplit(
        security.status().message(), absl::MaxSplits(". Remedy: ", 1));
    return {Kind::kFault, "key", parts[0],
            parts.size() > 1 ? parts[1] : "psring keygen makes one"};
  }
  if (security->secret.has_value()) return Good("key", security->source);
  return Absent("key", security->insecure
                           ? "none is wanted (PSRING_INSECURE=1)"
                           : "none: jobs on several hosts need psring keygen");
}

Finding Address(const DoctorFlags& flags) {
  AddressWish wish = flags.wish;
  if (!flags.coordinator.empty()) {
    const auto coordinator = ParseHostPort(flags.coordinator);
    absl::Status found = coordinator.status();
    if (found.ok()) found = Resolve(coordinator->host).status();
    if (!found.ok()) {
      return {Kind::kFault, "address", std::string(found.message()),
              "--coordinator=HOST:PORT"};
    }
    wish.coordinator_host = coordinator->host;
    const auto security = FindSecurity({}, ReadVariables());
    wish.reachable = security.ok() && security->secret.has_value();
  }
  const auto address = ChooseAdvertised(wish);
  if (!address.ok()) {
    return {Kind::kFault, "address", std::string(address.status().message()),
            "--interface=NAME or --advertise=ADDRESS"};
  }
  return Good("address", absl::StrCat("would advertise ", address->address,
                                      ": ", address->reason));
}

// A container's limit leaves less than the host has.
std::string Memory(const Machine& machine) {
  const std::string all =
      FormatBytes(static_cast<double>(machine.memory_bytes));
  const int64_t available = AvailableMemory();
  return available >= machine.memory_bytes
             ? all
             : absl::StrCat(all, ", of which this process can get ",
                            FormatBytes(static_cast<double>(available)));
}

std::vector<Finding> Examine(const DoctorFlags& flags) {
  const Machine machine = DescribeMachine();
  return {
      Server(flags.binaries.ps),
      Torch(flags.binaries.worker),
      Zmq(),
      Protobuf(),
      Cuda(),
      Nccl(),
      Good("cores", absl::StrCat(machine.cores, " (", machine.cpu, ")")),
      Good("memory", Memory(machine)),
      Key(),
      Address(flags),
  };
}

}  // namespace

int Doctor(const Args& args) {
  CommandLine line(kDescription, "psring doctor");
  DoctorFlags flags;
  line.Add("--coordinator", flags.coordinator,
           "HOST:PORT of a job's coordinator, to find the route to it");
  line.Add("--interface", flags.wish.interface,
           "Advertises this network interface's address, e.g. eth0");
  line.Add("--advertise", flags.wish.advertise, "Advertises this address");
  AddBinaryFlags(line, flags.binaries);
  line.Footer(kExample);
  if (auto code = line.Parse(args)) return *code;
  const std::vector<Finding> findings = Examine(flags);
  std::cout << RenderFindings(findings) << std::flush;
  return HasFault(findings) ? kExitFailed : 0;
}

}  // namespace psring
