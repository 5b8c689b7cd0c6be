#include "common/cluster/pod_names.h"

#include <cstdlib>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/net/greeting.h"

namespace psring {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);
// A host that is gone answers no connection.
constexpr absl::Duration kGreetingPatience = absl::Seconds(2);

// Until `why_not`, of the address that the name has, is empty.
absl::Status AwaitName(
    const std::string& host, Time deadline, const Cancellation& cancellation,
    const std::function<std::string(const std::string& address)>& why_not) {
  for (bool told = false;; told = true) {
    const auto address = Resolve(host);
    const std::string why = address.ok()
                                ? why_not(*address)
                                : std::string(address.status().message());
    if (why.empty()) return absl::OkStatus();
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(why, ", until the join timeout"));
    }
    if (!told) LogWarning("$0; looks the name up until the join timeout", why);
    absl::Status s = cancellation.SleepUntil(Now() + kInterval);
    if (!s.ok()) return s;
  }
}

}  // namespace

bool InPod() {
  const char* service = std::getenv("KUBERNETES_SERVICE_HOST");
  return service != nullptr && *service != '\0';
}

absl::Status AwaitListener(const HostPort& named, Time deadline,
                           const Cancellation& cancellation) {
  return AwaitName(
      named.host, deadline, cancellation, [&](const std::string& address) {
        const std::string at = ToString(HostPort{address, named.port});
        return MechanismAt(absl::StrCat("tcp://", at), kGreetingPatience)
                       .has_value()
                   ? std::string()
                   : absl::StrCat("no coordinator answers at ", ToString(named),
                                  ", which is ", at);
      });
}

absl::Status AwaitOwnName(const std::string& host, Time deadline,
                          const Cancellation& cancellation) {
  return AwaitName(host, deadline, cancellation,
                   [&](const std::string& address) {
                     return IsLoopback(address) || !InterfaceOf(address).empty()
                                ? std::string()
                                : absl::StrCat(host, " is ", address,
                                               ", which is not this host's");
                   });
}

}  // namespace psring
