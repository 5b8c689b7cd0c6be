#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lab/bench/peers.h"
#include "lab/bench/peers/mpi_allreduce.h"
#include "lab/host/capture.h"
#include "lab/host/find_program.h"
#include "lab/host/temp_dir.h"
#include "lab/host/text_file.h"

namespace psring {
namespace {

// What compiles a program of an MPI and starts its ranks.
struct MpiKit {
  std::vector<std::string> environment;  // what goes before each command
  std::string compiler;
  std::vector<std::string> compiler_flags;
  std::vector<std::string> run;  // up to the number of ranks
  std::string version;
  std::string remedy;  // where its program cannot be compiled
};

std::vector<std::string> Join(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class MpiContender : public Contender {
 public:
  MpiContender(const char* name, const Stage& stage, MpiKit kit,
               std::string program)
      : name_(name),
        stage_(stage),
        kit_(std::move(kit)),
        program_(std::move(program)) {}

  std::string name() const override { return name_; }

  absl::StatusOr<Samples> Run(const Shape& shape) override {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const Command command = {
        "mpirun",
        Join(Join(kit_.environment, kit_.run),
             {absl::StrCat(shape.ranks), program_,
              absl::StrCat(shape.size_bytes), absl::StrCat(shape.iterations),
              absl::StrCat(shape.warmup), dir->path(),
              absl::StrCat(shape.batch)})};
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      return supervisor.Start(command);
    });
    if (!status.ok()) return status;
    return ReadSamples(dir->path(), shape.ranks, shape.iterations);
  }

 private:
  const std::string name_;
  const Stage& stage_;
  const MpiKit kit_;
  const std::string program_;
};

constexpr char kOpenMpiRemedy[] =
    "To get it: apt-get install openmpi-bin libopenmpi-dev";

absl::StatusOr<MpiKit> FindOpenMpi() {
  const auto compiler = FindProgram("mpicxx");
  const auto mpirun = FindProgram("mpirun");
  if (!compiler || !mpirun) {
    return absl::NotFoundError(absl::StrCat(
        "no ", compiler ? "mpirun" : "mpicxx", ". ", kOpenMpiRemedy));
  }
  const auto said = Capture({*mpirun, "--version"});
  if (!said.ok() || said->empty() ||
      !absl::StrContains(said->front(), "Open MPI")) {
    return absl::NotFoundError(absl::StrCat(*mpirun, " is not Open MPI's"));
  }
  MpiKit kit;
  kit.compiler = *compiler;
  kit.run = {*mpirun, "--allow-run-as-root", "--oversubscribe", "-n"};
  kit.version = said->front();
  kit.remedy = kOpenMpiRemedy;
  return kit;
}

// Where Intel's packages have been installed by pip.
std::string IntelFolder() {
  const char* folder = std::getenv("PSRING_PEERS");
  if (folder != nullptr && *folder != '\0') return folder;
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.cache/psring/peers");
}

absl::StatusOr<MpiKit> FindIntelMpi(bool oneccl) {
  const std::string folder = IntelFolder();
  const char* path = std::getenv("PATH");
  MpiKit kit;
  // Its programs find each other, and oneCCL its kernels, by these.
  kit.environment = {
      "/usr/bin/env",
      absl::StrCat("PATH=", folder, "/bin:", path == nullptr ? "" : path),
      absl::StrCat("LD_LIBRARY_PATH=", folder, "/lib"),
      absl::StrCat("CCL_ROOT=", folder),
      "CCL_LOG_LEVEL=error",
  };
  kit.compiler = absl::StrCat(folder, "/bin/mpicxx");
  kit.compiler_flags = {absl::StrCat("-I", folder, "/include"),
                        absl::StrCat("-L", folder, "/lib")};
  if (oneccl) {
    kit.compiler_flags.push_back("-DPSRING_ONECCL");
    kit.compiler_flags.push_back("-lccl");
  }
  kit.run = {absl::StrCat(folder, "/bin/mpirun"), "-n"};
  const auto said =
      Capture(Join(kit.environment, {kit.run.front(), "--version"}));
  kit.remedy = absl::StrCat(
      "To get it: python3 -m venv ", folder, " && ", folder,
      "/bin/pip install impi-devel oneccl-devel (2 GB). Where it is elsewhere, "
      "PSRING_PEERS says so");
  if (!said.ok() || said->empty() ||
      !absl::StrContains(said->front(), "Intel")) {
    return absl::NotFoundError(
        absl::StrCat("none in ", folder, ". ", kit.remedy));
  }
  kit.version = absl::StrCat(oneccl ? "oneCCL over " : "", said->front());
  return kit;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeMpiPeer(
    const char* name, const Stage& stage, const std::string& directory,
    std::string* version) {
  const bool oneccl = std::string(name) == kOneCcl;
  auto kit =
      std::string(name) == kOpenMpi ? FindOpenMpi() : FindIntelMpi(oneccl);
  if (!kit.ok()) return kit.status();
  *version = kit->version;
  const std::string program = absl::StrCat(directory, "/", name, "_allreduce");
  const std::string source = absl::StrCat(program, ".cc");
  if (absl::Status s = WriteTextFile(source, kMpiAllReduce); !s.ok()) return s;
  std::vector<std::string> compile =
      Join(kit->environment, {kit->compiler, "-O3", "-o", program, source});
  const auto compiled =
      Capture(Join(std::move(compile), kit->compiler_flags), absl::Minutes(2));
  if (!compiled.ok()) {
    return absl::NotFoundError(
        absl::StrCat(kit->remedy, ". ", kit->compiler,
                     " fails: ", std::string(compiled.status().message())));
  }
  return std::make_unique<MpiContender>(name, stage, *std::move(kit), program);
}

}  // namespace psring
