#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lab/bench/peers.h"
#include "lab/bench/peers/openmpi_allreduce.h"
#include "lab/host/capture.h"
#include "lab/host/find_program.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

class OpenMpiContender : public Contender {
 public:
  OpenMpiContender(const Stage& stage, std::string mpirun, std::string program)
      : stage_(stage),
        mpirun_(std::move(mpirun)),
        program_(std::move(program)) {}

  std::string name() const override { return kOpenMpi; }

  absl::StatusOr<Samples> Run(const Shape& shape) override {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const Command command = {
        "mpirun",
        {mpirun_, "--allow-run-as-root", "--oversubscribe", "-n",
         absl::StrCat(shape.ranks), program_, absl::StrCat(shape.size_bytes),
         absl::StrCat(shape.iterations), absl::StrCat(shape.warmup),
         dir->path()}};
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      return supervisor.Start(command);
    });
    if (!status.ok()) return status;
    return ReadSamples(dir->path(), shape.ranks, shape.iterations);
  }

 private:
  const Stage& stage_;
  const std::string mpirun_;
  const std::string program_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeOpenMpi(
    const Stage& stage, const std::string& directory, std::string* version) {
  const auto mpicc = FindProgram("mpicc");
  const auto mpirun = FindProgram("mpirun");
  if (!mpicc || !mpirun) {
    return absl::NotFoundError(absl::StrCat("no ", mpicc ? "mpirun" : "mpicc"));
  }
  const auto said = Capture({*mpirun, "--version"});
  if (!said.ok() || said->empty() ||
      said->front().find("Open MPI") == std::string::npos) {
    return absl::NotFoundError(absl::StrCat(*mpirun, " is not Open MPI's"));
  }
  *version = said->front();
  const std::string source = absl::StrCat(directory, "/openmpi_allreduce.c");
  const std::string program = absl::StrCat(directory, "/openmpi_allreduce");
  std::ofstream file(source);
  file << kOpenMpiAllReduce;
  file.close();
  const auto compiled =
      Capture({*mpicc, "-O3", "-o", program, source}, absl::Minutes(1));
  if (!compiled.ok()) {
    return absl::NotFoundError(
        absl::StrCat("mpicc: ", std::string(compiled.status().message())));
  }
  return std::make_unique<OpenMpiContender>(stage, *mpirun, program);
}

}  // namespace psring
