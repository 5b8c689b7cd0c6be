// The metrics and the checkpoint of a training that never took place.
#ifndef PSRING_TESTS_LAB_HOST_FAKE_TRAINING_H_
#define PSRING_TESTS_LAB_HOST_FAKE_TRAINING_H_

#include <string>

namespace psring {

struct FakeTraining {
  std::string mode;  // empty: a server
  std::string sync = "bsp";
  int rank = 0;
  int epochs = 3;
  std::string metrics_dir;     // empty: none
  std::string checkpoint_dir;  // empty: none
  // The disk is full after the last epoch, as a process says that trains on.
  bool fills_disk = false;
};

void WriteServerMetrics(const FakeTraining& training);

// A ring is twice as fast as a server; async ends less accurate.
void WriteWorkerMetrics(const FakeTraining& training);

}  // namespace psring

#endif  // PSRING_TESTS_LAB_HOST_FAKE_TRAINING_H_
