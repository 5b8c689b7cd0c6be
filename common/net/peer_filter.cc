#include "common/net/peer_filter.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/printable.h"

namespace psring {
namespace {

constexpr int64_t kToldEach = 100;

}  // namespace

void PeerFilter::Drop(const std::string& peer, const absl::Status& why) {
  ++malformed_;
  if (dropped_.insert(peer).second) {
    oldest_.push_back(peer);
    if (oldest_.size() > kMaxDropped) {
      dropped_.erase(oldest_.front());
      oldest_.pop_front();
    }
  }
  if (malformed_ < told_at_) return;
  told_at_ = malformed_ < kToldEach ? malformed_ + 1 : 10 * malformed_;
  const std::string count =
      malformed_ > kToldEach ? absl::StrCat(" (", malformed_, " so far)") : "";
  LogWarning("dropped peer $0 of $1: $2$3", absl::BytesToHexString(peer),
             endpoint_, Printable(why.message(), 512), count);
}

}  // namespace psring
