// Several hosts on one machine: each a network, process and mount namespace,
// joined by a switch with links of a limited rate.
#ifndef PSRING_LAB_HOST_HOSTS_H_
#define PSRING_LAB_HOST_HOSTS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lab/host/child.h"

namespace psring {

// The namespaces have no names; a process that does nothing keeps each alive,
// as the first process of its process namespace. When that ends, because this
// object does or this program does (however: it is the kernel that sees to it),
// the kernel kills everything in the namespace and removes its devices.
//
// One thread's own, which must not end before it.
class Hosts {
 public:
  // `bits_per_s` limits each host's link in both directions. PERMISSION_DENIED
  // and UNAVAILABLE say what is missing and what to do.
  static absl::StatusOr<std::unique_ptr<Hosts>> Create(int count,
                                                       double bits_per_s);
  // The same with a rate for each.
  static absl::StatusOr<std::unique_ptr<Hosts>> Create(
      const std::vector<double>& bits_per_s);

  // The same errors, before there is anything to create.
  static absl::Status CheckMachine();

  int count() const { return static_cast<int>(holders_.size()); }

  // The part of a link's rate that a TCP stream's bytes get: 1448 in a frame of
  // 1514.
  static constexpr double kPayloadShare = 1448.0 / 1514;

  static std::string AddressOf(int host);
  // The name of the link's device on every host.
  static constexpr char kInterface[] = "eth0";

  // What goes before a command line to run it on that host, in this process'
  // working directory. Signals to the group and the exit code pass through.
  std::vector<std::string> PrefixOf(int host) const;

 private:
  Hosts() = default;

  absl::Status Start(int count);
  absl::Status Connect(const std::vector<double>& bits_per_s);
  absl::Status RunIn(const Child& holder, const std::string& command) const;

  std::unique_ptr<Child> switch_;
  std::vector<std::unique_ptr<Child>> holders_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_HOSTS_H_
