// Meetings of workers that nothing keeps together (ssp, async).
#ifndef PSRING_WORKER_PATIENT_EXCHANGE_H_
#define PSRING_WORKER_PATIENT_EXCHANGE_H_

#include <memory>
#include <utility>

#include "common/cluster/member.h"
#include "common/exchange/forwarding_exchange.h"

namespace psring {

// An exchange whose Synchronise first waits, without a deadline, until every
// worker has come: one that is far behind, but still steps, is no failure. The
// coordinator ends the job of one that dies or hangs (--progress-timeout).
// `member` outlives it.
class PatientExchange : public ForwardingExchange {
 public:
  PatientExchange(std::unique_ptr<GradientExchange> inner, Member& member)
      : ForwardingExchange(std::move(inner)), member_(member) {}

  absl::Status Synchronise(Before next, Time deadline) override {
    const Time begin = Now();
    const auto all = member_.Gather("catch up", "", Time::InfiniteFuture());
    if (!all.ok()) return all.status();
    return inner().Synchronise(next, Now() + (deadline - begin));
  }

 private:
  Member& member_;
};

}  // namespace psring

#endif  // PSRING_WORKER_PATIENT_EXCHANGE_H_
