#include "common/net/peer_filter.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/printable.h"

namespace psring {
namespace {

constexpr int64_t kToldEach = 100;

}  // namespace

void PeerFilter::Drop(const std::string& peer, const absl::Status& why,
                      int proven_rank) {
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
  const std::string who =
      proven_rank < 0 ? "" : absl::StrCat(" (worker ", proven_rank, ")");
  LogWarning("dropped peer $0$1 of $2: $3$4", absl::BytesToHexString(peer), who,
             endpoint_, Printable(why.message(), 512), count);
}

}  // namespace psring
