#include "lab/host/job_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/look.h"

namespace psring {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<JobWatch>> JobWatch::Start(
    const Security& security, const HostPort& coordinator, Text text) {
  const auto host = Resolve(coordinator.host);
  if (!host.ok()) return host.status();
  std::unique_ptr<JobWatch> watch(new JobWatch(std::move(text)));
  if (absl::Status s = watch->context_.Protect(security.secret); !s.ok()) {
    return s;
  }
  const std::string endpoint =
      absl::StrCat("tcp://", ToString(HostPort{*host, coordinator.port}));
  watch->thread_ =
      std::thread([self = watch.get(), endpoint] { self->Run(endpoint); });
  return watch;
}

JobWatch::~JobWatch() {
  end_.Cancel(absl::CancelledError("nobody looks any more"));
  if (thread_.joinable()) thread_.join();
}

std::vector<std::string> JobWatch::lines() const {
  MutexLock lock(&mutex_);
  return lines_;
}

bool JobWatch::FormingSince(Time since) const {
  MutexLock lock(&mutex_);
  const bool silent = answered_ <= since && Now() - since > kPatience;
  return forming_ > since || (silent && !formed_);
}

void JobWatch::Run(const std::string& endpoint) {
  JobState state;
  while (end_.SleepUntil(Now() + kInterval).ok()) {
    const Time asked = Now();
    const auto view = LookAtJob(context_, end_, endpoint, kPatience);
    if (!view.ok()) continue;
    state.Take(Now(), *view);
    std::vector<std::string> lines = text_(state);
    MutexLock lock(&mutex_);
    lines_ = std::move(lines);
    answered_ = Now();
    const bool forms = view->state() == proto::JobView::FORMING;
    forming_ = forms ? asked : Time::InfinitePast();
    formed_ = formed_ || !forms;
  }
}

}  // namespace psring
