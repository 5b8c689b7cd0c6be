// Ports of this host that nobody listens at, or answers at.
#ifndef PSRING_TESTS_TESTING_DEAF_PORT_H_
#define PSRING_TESTS_TESTING_DEAF_PORT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace psring {

// It refuses whoever connects, and nobody else gets it while this object lives:
// a port that is only free now may be another test's a moment later.
class DeafPort {
 public:
  DeafPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, any, size), 0);
    EXPECT_EQ(getsockname(fd_, any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~DeafPort() { close(fd_); }
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 protected:
  const int fd_;

 private:
  int port_ = 0;
};

// The kernel takes whoever connects.
class SilentPort : public DeafPort {
 public:
  SilentPort() { EXPECT_EQ(listen(fd_, 1), 0); }

  // Blocks until somebody connects. The caller closes it.
  int Accept() const { return accept(fd_, nullptr, nullptr); }
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_DEAF_PORT_H_
