#include "common/net/zmq_info.h"

#include <zmq.h>

#include "absl/strings/str_cat.h"

namespace psring {

std::string ZmqVersion() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  return absl::StrCat(major, ".", minor, ".", patch);
}

bool ZmqHasCurve() { return zmq_has("curve") == 1; }

}  // namespace psring
