#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "lab/bench/peers.h"
#include "lab/bench/peers/pslite_pushpull.h"
#include "lab/host/capture.h"
#include "lab/host/find_program.h"
#include "lab/host/temp_dir.h"
#include "lab/host/text_file.h"

namespace psring {
namespace {

constexpr char kHowToBuild[] =
    "apt-get install g++ make libzmq3-dev libprotobuf-dev protobuf-compiler; "
    "git clone https://github.com/dmlc/ps-lite; make -C ps-lite ps "
    "DEPS_PATH=/usr";

class PsLiteContender : public Contender {
 public:
  PsLiteContender(const Stage& stage, std::string program)
      : stage_(stage), program_(std::move(program)) {}

  std::string name() const override { return kPsLite; }

  absl::StatusOr<Samples> Run(const Shape& shape) override {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const int port = FreePort();
    if (port == 0)
      return absl::UnavailableError("no port of this host is free");
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      absl::Status s = supervisor.Start(
          CommandOf(shape, "scheduler", "ps-lite scheduler", port, *dir));
      for (int i = 0; s.ok() && i < shape.servers; ++i) {
        s = supervisor.Start(CommandOf(
            shape, "server", absl::StrCat("ps-lite server ", i), port, *dir));
      }
      for (int i = 0; s.ok() && i < shape.ranks; ++i) {
        s = supervisor.Start(CommandOf(
            shape, "worker", absl::StrCat("ps-lite worker ", i), port, *dir));
      }
      return s;
    });
    if (!status.ok()) return status;
    auto samples = ReadSamples(dir->path(), shape.ranks, shape.iterations);
    if (!samples.ok()) return samples;
    for (int i = 0; i < shape.servers; ++i) {
      absl::Status s = AddServer(
          absl::StrCat(dir->path(), "/server-", i, ".json"), &*samples);
      if (!s.ok()) return s;
    }
    return samples;
  }

 private:
  Command CommandOf(const Shape& shape, const char* role,
                    const std::string& name, int port,
                    const TempDir& out) const {
    return {
        name,
        {"/usr/bin/env", absl::StrCat("DMLC_ROLE=", role),
         absl::StrCat("DMLC_NUM_WORKER=", shape.ranks),
         absl::StrCat("DMLC_NUM_SERVER=", shape.servers),
         "DMLC_PS_ROOT_URI=127.0.0.1", absl::StrCat("DMLC_PS_ROOT_PORT=", port),
         "DMLC_NODE_HOST=127.0.0.1", program_, absl::StrCat(shape.size_bytes),
         absl::StrCat(shape.iterations), absl::StrCat(shape.warmup), out.path(),
         absl::StrCat(shape.batch)}};
  }

  static absl::Status AddServer(const std::string& path, Samples* samples) {
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file, nullptr, false);
    try {
      samples->server_cpu_seconds += json.at("cpu_seconds").get<double>();
      samples->server_peak_bytes = std::max(
          samples->server_peak_bytes, json.at("peak_bytes").get<int64_t>());
    } catch (const nlohmann::json::exception&) {
      return absl::DataLossError(
          absl::StrCat("a server of ps-lite has not written ", path));
    }
    return absl::OkStatus();
  }

  const Stage& stage_;
  const std::string program_;
};

}  // namespace

absl::Status CheckPsLiteTree(const std::string& tree) {
  for (const char* part : {"/include/ps/ps.h", "/build/libps.a"}) {
    if (std::filesystem::exists(tree + part)) continue;
    return absl::NotFoundError(
        absl::StrCat(tree, " is not a built tree of ps-lite: it has no ",
                     part + 1, ". To build one: ", kHowToBuild));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Contender>> MakePsLite(
    const Stage& stage, const std::string& tree, const std::string& directory) {
  if (tree.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--ps-lite=DIR names its tree. To get it: ", kHowToBuild));
  }
  if (absl::Status s = CheckPsLiteTree(tree); !s.ok()) return s;
  const auto compiler = FindProgram("c++");
  if (!compiler) {
    return absl::NotFoundError("no c++. To get it: apt-get install g++");
  }
  const std::string program = absl::StrCat(directory, "/pslite_pushpull");
  const std::string source = absl::StrCat(program, ".cc");
  if (absl::Status s = WriteTextFile(source, kPsLitePushPull); !s.ok())
    return s;
  // A tree built without DEPS_PATH has libraries of its own in deps.
  const std::string libraries = absl::StrCat(tree, "/deps/lib");
  const auto compiled = Capture(
      {*compiler, "-std=c++14", "-O3", "-o", program, source,
       absl::StrCat("-I", tree, "/include"),
       absl::StrCat("-I", tree, "/deps/include"),
       absl::StrCat(tree, "/build/libps.a"), absl::StrCat("-L", libraries),
       absl::StrCat("-Wl,-rpath,", libraries), "-lprotobuf-lite", "-lzmq",
       "-pthread"},
      absl::Minutes(2));
  if (!compiled.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "the program that uses ", tree,
        " does not compile: ", std::string(compiled.status().message())));
  }
  return std::make_unique<PsLiteContender>(stage, program);
}

}  // namespace psring
