// Somebody who connects to a job's ports and does not speak as its processes
// do.
#ifndef PSRING_TESTS_INTEGRATION_INTRUDER_H_
#define PSRING_TESTS_INTEGRATION_INTRUDER_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/net/socket.h"

namespace psring {

// Whatever it opens stays open until it ends.
class Intruder {
 public:
  ~Intruder();

  // Connections that say nothing, the half of a greeting, bytes of another
  // protocol or of none, a frame of 2^62 bytes; and one that is reset.
  void VisitWithRawBytes(int port);

  // A peer that greets as ZeroMQ does, then sends what is no message of a job:
  // none, one and many frames, garbage, well-formed messages of other jobs.
  void VisitWithFrames(int port);

 private:
  void SendRaw(int port, const std::string& bytes);
  std::string Random(size_t size);

  std::mt19937 random_{1};
  Context context_;
  std::vector<std::unique_ptr<Socket>> sockets_;  // end before the context
  std::vector<int> fds_;
};

}  // namespace psring

#endif  // PSRING_TESTS_INTEGRATION_INTRUDER_H_
