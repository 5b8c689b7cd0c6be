#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lab/bench/peers.h"
#include "lab/bench/peers/gloo_allreduce.h"
#include "lab/host/capture.h"
#include "lab/host/find_program.h"
#include "lab/host/temp_dir.h"
#include "lab/host/text_file.h"
#include "lab/host/torch_location.h"

namespace psring {
namespace {

// Not a torch in the folder in which psring is called, which may be anybody's.
constexpr char kProbe[] =
    "import sys\n"
    "sys.path[:] = filter(None, sys.path)\n"
    "import torch, torch.distributed as d\n"
    "assert d.is_available() and d.is_gloo_available()\n"
    "print(torch.__version__)";

// PREFIX/lib/python3.11/site-packages/torch belongs to PREFIX/bin/python3.
std::vector<std::string> Candidates() {
  std::vector<std::string> candidates;
  if (const auto python = FindProgram("python3")) candidates.push_back(*python);
  const std::string torch(absl::StripSuffix(kTorchLocation, "\n"));
  const size_t library = torch.rfind("/lib/python");
  if (library != std::string::npos) {
    candidates.push_back(torch.substr(0, library) + "/bin/python3");
  }
  return candidates;
}

class GlooContender : public Contender {
 public:
  GlooContender(const Stage& stage, std::string python, std::string script)
      : stage_(stage), python_(std::move(python)), script_(std::move(script)) {}

  std::string name() const override { return kGloo; }

  absl::StatusOr<Samples> Run(const Shape& shape) override {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      for (int rank = 0; rank < shape.ranks; ++rank) {
        if (absl::Status s =
                supervisor.Start(CommandOf(shape, rank, dir->path()));
            !s.ok()) {
          return s;
        }
      }
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return ReadSamples(dir->path(), shape.ranks, shape.iterations);
  }

 private:
  Command CommandOf(const Shape& shape, int rank,
                    const std::string& out) const {
    Command command = {absl::StrCat("gloo rank ", rank),
                       stage_.WorkerPrefix(rank)};
    for (std::string word :
         {python_, script_, absl::StrCat("--rank=", rank),
          absl::StrCat("--ranks=", shape.ranks),
          absl::StrCat("--size=", shape.size_bytes),
          absl::StrCat("--iterations=", shape.iterations),
          absl::StrCat("--warmup=", shape.warmup),
          absl::StrCat("--batch=", shape.batch), absl::StrCat("--out=", out),
          absl::StrCat("--store=", out, "/store"),
          absl::StrCat("--interface=",
                       stage_.hosts ? Hosts::kInterface : "lo")}) {
      command.argv.push_back(std::move(word));
    }
    return command;
  }

  const Stage& stage_;
  const std::string python_;
  const std::string script_;
};

}  // namespace

absl::StatusOr<GlooPython> FindGlooPython() {
  const std::vector<std::string> candidates = Candidates();
  for (const std::string& python : candidates) {
    const auto lines = Capture({python, "-c", kProbe}, absl::Minutes(1));
    if (lines.ok() && !lines->empty()) return GlooPython{python, lines->back()};
  }
  return absl::NotFoundError(
      candidates.empty() ? "no python3"
                         : absl::StrCat("no torch with Gloo in ",
                                        absl::StrJoin(candidates, " and ")));
}

absl::StatusOr<std::unique_ptr<Contender>> MakeGloo(
    const Stage& stage, const GlooPython& python,
    const std::string& directory) {
  const std::string script = absl::StrCat(directory, "/gloo_allreduce.py");
  if (absl::Status s = WriteTextFile(script, kGlooAllReduce); !s.ok()) return s;
  return std::make_unique<GlooContender>(stage, python.python, script);
}

}  // namespace psring
