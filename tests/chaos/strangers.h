// Crowds of strangers at a port: connections of the test's own that say what
// they like, as fast as they can, and come again when they are shown out or not
// let in soon: all of them together a thousand times a second. They keep to
// this host's first core, which they are to have for themselves: strangers have
// machines of their own.
#ifndef PSRING_TESTS_CHAOS_STRANGERS_H_
#define PSRING_TESTS_CHAOS_STRANGERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace psring {

// What each of them says.
struct Speech {
  std::function<std::string()> opening;  // once; each has one of its own
  std::string refrain;  // then again and again; empty: nothing more
  // The opening goes out byte by byte, so far apart; zero: all at once.
  absl::Duration pause;
  // The refrain begins when so many bytes have come back.
  size_t awaits = 0;
  // Resets its connection as soon as it stands.
  bool leaves = false;
};

// What this thread starts from now on keeps to the other cores, where there are
// any.
void LeaveCoreToStrangers();

class Strangers {
 public:
  // `crowd` connections to 127.0.0.1:`port` at a time.
  Strangers(int port, size_t crowd, Speech speech);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  // So far. Any thread.
  size_t requests() const { return requests_; }
  size_t connections() const { return connections_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Stranger;

  void Run();
  // What poll has to tell of it.
  short Awaited(const Stranger& stranger) const;
  // False: it has been shown out, or not let in.
  bool Attend(Stranger& stranger, short events);
  bool Speak(Stranger& stranger);

  const int port_;
  const size_t crowd_;
  const Speech speech_;
  std::atomic<bool> stop_ = false;
  std::atomic<size_t> requests_ = 0;  // for a connection
  std::atomic<size_t> connections_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_TESTS_CHAOS_STRANGERS_H_
