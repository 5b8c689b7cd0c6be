// Somebody who visits a job's ports and does everything that a stranger may.
#ifndef PSRING_TESTS_INTEGRATION_INTRUDER_H_
#define PSRING_TESTS_INTEGRATION_INTRUDER_H_

#include <deque>
#include <random>
#include <string>

#include "tests/testing/hostile_peer.h"

namespace psring {

// Whatever it opens stays open until it ends.
class Intruder {
 public:
  // Connections that say nothing, the half of a greeting, bytes of another
  // protocol or of none, a frame of 2^62 bytes; and one that is reset.
  void VisitWithRawBytes(int port);

  // A peer that greets as ZeroMQ does, then sends what is no message of a job:
  // none, one and many frames, garbage, well-formed messages of other jobs.
  // Returns when all of it has been taken.
  void VisitWithFrames(int port);

  // The same at a port that is for the job's workers alone: it is shown out in
  // the handshake.
  void VisitUninvited(int port);

 private:
  HostilePeer& PeerAt(int port);
  std::string Random(size_t size);

  std::mt19937 random_{1};
  std::deque<HostilePeer> peers_;
};

}  // namespace psring

#endif  // PSRING_TESTS_INTEGRATION_INTRUDER_H_
