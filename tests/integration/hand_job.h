// A job whose processes a test starts one by one, as people with several shells
// do.
#ifndef PSRING_TESTS_INTEGRATION_HAND_JOB_H_
#define PSRING_TESTS_INTEGRATION_HAND_JOB_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"

namespace psring {

using Flags = std::vector<std::string>;

// A model and data so small that a step takes about a millisecond.
Flags SmallTraining();
// The same for so many steps, with a checkpoint of the last.
Flags SmallTraining(int steps, const std::string& checkpoint_dir);
// The same, until somebody ends it.
Flags EndlessTraining();

// Of every process, where the payload shall go through the ports, one a server.
inline const Flags kMessages = {"--same-host=off", "--shard-threads=1"};

struct HandJobOptions {
  std::string mode = "ps";
  int servers = 1;  // none in a ring
  int workers = 2;
  Flags worker_flags = SmallTraining();
  Flags cluster_flags = {};  // of every process
  std::string coordinator = "127.0.0.1:0";
  // Of some processes, added to the test's own.
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> env =
      {};
};

// Failures of the test's own are gtest failures.
class HandJob {
 public:
  explicit HandJob(HandJobOptions options);

  // Its processes as people know them, "ps 0" or "worker 1"; the first one
  // hosts the coordinator.
  const std::vector<std::string>& names() const { return names_; }

  void StartAll();
  // The first one to start must be the host.
  Process& Start(const std::string& name) {
    return Start(name, options_.worker_flags);
  }
  Process& Start(const std::string& name, const Flags& worker_flags);
  Process& operator[](const std::string& name) { return processes_.at(name); }

  // Of the processes that have been started.
  std::vector<pid_t> pids() const;

  // Where the coordinator listens.
  int port() const { return port_; }
  std::string address() const;

  // Returns when worker 0 has trained for `time` and counted an epoch.
  void TrainFor(absl::Duration time);

  void ExpectAllEndWell();
  // Everybody but `culprit` ends with an error whose line contains `parts`.
  void ExpectOthersFail(const std::string& culprit, const Flags& parts,
                        Time deadline = Soon());

 private:
  Flags Argv(const std::string& name, const Flags& worker_flags) const;

  const HandJobOptions options_;
  std::vector<std::string> names_;
  std::string port_file_;
  int port_ = 0;
  std::map<std::string, Process> processes_;
};

// What that training ends with where nobody disturbs it, over messages. In bsp
// the topology does not matter.
std::string UndisturbedCheckpoint(int steps);

// The line that the process ended with.
std::string LastLine(const std::string& output);

}  // namespace psring

#endif  // PSRING_TESTS_INTEGRATION_HAND_JOB_H_
