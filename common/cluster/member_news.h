// What a process has heard from its job's coordinator. Pure: no clock, no
// socket, no lock.
#ifndef PSRING_COMMON_CLUSTER_MEMBER_NEWS_H_
#define PSRING_COMMON_CLUSTER_MEMBER_NEWS_H_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/cluster/clock_offset.h"
#include "protos/cluster.pb.h"

namespace psring {

class MemberNews {
 public:
  // `coordinator` names it in errors.
  MemberNews(proto::Role role, std::string coordinator)
      : role_(role), coordinator_(std::move(coordinator)) {}

  // The coordinator has said this, at `now`. An error has ended the job for
  // this process, ABORTED for others too: nothing is to be taken after it.
  absl::Status Take(const proto::ControlMessage& message, Time now);

  // Once the job is complete: who takes part, and this process's rank.
  const std::optional<proto::Welcome>& arrived() const { return arrived_; }

  // An answer to this gather is awaited from now on.
  void AwaitGathered(const std::string& name) { awaited_.insert(name); }
  bool HasGathered(const std::string& name) const {
    return gathered_.contains(name);
  }
  // The answer, if it has come; none is awaited any more.
  std::optional<proto::Gathered> TakeGathered(const std::string& name);

  // In the order of arrival; whoever uses one erases it.
  std::deque<proto::Announce>& announced() { return announced_; }
  // The ranks of workers, in the order in which they left.
  const std::vector<int>& workers_left() const { return workers_left_; }
  // How far the coordinator's clock is ahead.
  std::optional<ClockOffset> clock() const;
  // Whether the job has ended well.
  bool ended() const { return ended_; }
  // Whether the error that ended it names a process that hangs.
  bool hang() const { return hang_; }

 private:
  absl::Status OnSeat(int rank);
  void OnAnnouncement(const proto::Announce& announcement);

  const proto::Role role_;
  const std::string coordinator_;
  proto::Welcome roster_;  // without this process's rank
  std::optional<proto::Welcome> arrived_;
  std::set<std::string> awaited_;  // gathers
  std::map<std::string, proto::Gathered> gathered_;
  std::deque<proto::Announce> announced_;
  std::vector<int> workers_left_;
  // Of the monotonic clocks, which run on where a process is stopped.
  std::optional<ClockOffset> monotonic_;
  absl::Duration coordinator_stopped_;
  bool hang_ = false;
  bool ended_ = false;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_MEMBER_NEWS_H_
