#include "common/net/peer_filter.h"

#include "absl/strings/escaping.h"
#include "spdlog/spdlog.h"

namespace psring {

void PeerFilter::Drop(const std::string& peer, const absl::Status& why) {
  ++malformed_;
  dropped_.insert(peer);
  spdlog::warn("dropped peer {} of {}: {}", absl::BytesToHexString(peer),
               endpoint_, std::string(why.message()));
}

}  // namespace psring
