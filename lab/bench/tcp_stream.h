// A TCP stream with deadlines and nothing else, so that a link is measured and
// no protocol. One thread's own.
#ifndef PSRING_LAB_BENCH_TCP_STREAM_H_
#define PSRING_LAB_BENCH_TCP_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/clock.h"

namespace psring {

class TcpStream {
 public:
  // `address` is numeric, IPv4 or IPv6.
  static absl::StatusOr<TcpStream> Connect(const std::string& address, int port,
                                           Time deadline);

  explicit TcpStream(int fd) : fd_(fd) {}
  ~TcpStream();
  TcpStream(TcpStream&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpStream& operator=(TcpStream&&) = delete;

  // All of it.
  absl::Status Send(absl::string_view bytes, Time deadline);
  // Whether Receive would not have to wait.
  bool HasInput() const;
  // At least one byte; 0 at the end of the stream.
  absl::StatusOr<int64_t> Receive(absl::Span<char> bytes, Time deadline);

 private:
  int fd_;
};

class TcpListener {
 public:
  // On all addresses, on a port that the system chooses.
  static absl::StatusOr<TcpListener> Create();

  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}
  TcpListener& operator=(TcpListener&&) = delete;

  int port() const { return port_; }
  absl::StatusOr<TcpStream> Accept(Time deadline);

 private:
  TcpListener(int fd, int port) : fd_(fd), port_(port) {}

  int fd_;
  int port_;
};

}  // namespace psring

#endif  // PSRING_LAB_BENCH_TCP_STREAM_H_
