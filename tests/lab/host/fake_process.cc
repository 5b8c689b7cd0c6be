// Stands in for the server's and for the worker's program: takes their flags,
// publishes a port, and does what its --fake flags say.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/lab/host/fake_training.h"

namespace {

struct Flags {
  psring::FakeTraining training;
  std::string port_file;
  int fail_rank = -1;
  int fail_code = 0;
  int fail_signal = 0;
  int hang_rank = -1;
  std::string seed = "0";
  std::string log;      // that worker 0 adds its mode and seed to
  std::string hang_on;  // a file with the mode and seed that worker 0 hangs in
  std::string fail_on;  // the mode and seed that worker 0 fails in as it trains
  std::string full_on;  // those in which worker 0's disk is full at the end
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  CLI::App app;
  app.allow_extras();
  app.add_option("--mode", flags.training.mode);
  app.add_option("--sync", flags.training.sync);
  app.add_option("--rank", flags.training.rank);
  app.add_option("--epochs", flags.training.epochs);
  app.add_option("--metrics-dir", flags.training.metrics_dir);
  app.add_option("--checkpoint-dir", flags.training.checkpoint_dir);
  app.add_option("--coordinator-port-file", flags.port_file);
  app.add_option("--fake-fail-rank", flags.fail_rank);
  app.add_option("--fake-fail-code", flags.fail_code);
  app.add_option("--fake-fail-signal", flags.fail_signal);
  app.add_option("--fake-hang-rank", flags.hang_rank);
  app.add_option("--seed", flags.seed);
  app.add_option("--fake-log", flags.log);
  app.add_option("--fake-hang-on", flags.hang_on);
  app.add_option("--fake-fail-on", flags.fail_on);
  app.add_option("--fake-full-on", flags.full_on);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return flags;
}

void PublishPort(const std::string& path) {
  std::ofstream(path + ".tmp") << "7000\n";
  std::rename((path + ".tmp").c_str(), path.c_str());
}

// "bsp 1", "ring 0".
std::string RunName(const Flags& flags) {
  return (flags.training.mode == "ring" ? "ring" : flags.training.sync) + " " +
         flags.seed;
}

bool HangsOn(const Flags& flags) {
  std::ifstream file(flags.hang_on);
  std::string name;
  return std::getline(file, name) && name == RunName(flags);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::cout << "psring worker\nlibtorch 9.8.7\nlibtorch's CUDA 13.0\n"
                 "libtorch's folder /opt/torch/lib"
              << std::endl;
    return 0;
  }
  Flags flags = Parse(argc, argv);
  if (!flags.port_file.empty()) PublishPort(flags.port_file);
  if (flags.training.mode.empty()) {  // a server
    if (flags.training.rank == flags.hang_rank) pause();
    psring::WriteServerMetrics(flags.training);
    return 0;
  }
  std::cout << "pid " << getpid() << std::endl;
  if (flags.training.rank == 0 && !flags.log.empty()) {
    std::ofstream(flags.log, std::ios::app)
        << RunName(flags) << " pid " << getpid() << std::endl;
    if (HangsOn(flags)) pause();
  }
  if (flags.training.rank == flags.hang_rank) pause();
  if (flags.training.rank == flags.fail_rank) {
    std::cout << "something broke" << std::endl;
    if (flags.fail_signal != 0) raise(flags.fail_signal);
    return flags.fail_code;
  }
  flags.training.fills_disk =
      flags.training.rank == 0 && flags.full_on == RunName(flags);
  psring::WriteWorkerMetrics(flags.training);
  if (flags.training.rank == 0 && flags.fail_on == RunName(flags)) {
    std::cout << "training has diverged" << std::endl;
    return 9;
  }
  return 0;
}
