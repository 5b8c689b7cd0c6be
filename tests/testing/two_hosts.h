// Two hosts on one machine: network namespaces with a cable between them.
#ifndef PSRING_TESTS_TESTING_TWO_HOSTS_H_
#define PSRING_TESTS_TESTING_TWO_HOSTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/testing/process.h"

namespace psring {

// The namespaces have no names and live as long as a process in them does:
// nothing is left of them when this object ends, however that comes.
class TwoHosts {
 public:
  // An error says what this machine lacks for it.
  static absl::StatusOr<TwoHosts> Create();

  // "10.123.0.1" and "10.123.0.2".
  static std::string AddressOf(int host);

  // `argv`, such that it runs on that host, 0 or 1. The process keeps its pid.
  std::vector<std::string> On(int host, std::vector<std::string> argv) const;

 private:
  TwoHosts(Process first, Process second)
      : holders_{std::move(first), std::move(second)} {}

  Process holders_[2];
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_TWO_HOSTS_H_
