#include "worker/patient_exchange.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// By the time that worker 1 comes, the other's deadline has passed.
constexpr absl::Duration kPatience = absl::Seconds(2);

// What worker 0 gets.
absl::Status MeetLateWorker(bool patient) {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::PARAMETER_SERVER, proto::ASYNC);
  options.num_workers = 2;
  absl::Status met;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    std::unique_ptr<GradientExchange> exchange = std::move(worker.exchange);
    if (patient) {
      exchange = std::make_unique<PatientExchange>(std::move(exchange),
                                                   *worker.member);
    }
    if (absl::Status s = exchange->Join({}, Soon()); !s.ok()) return s;
    if (worker.rank == 1) absl::SleepFor(kPatience + absl::Seconds(1));
    const absl::Status status =
        exchange->Synchronise(Before::kEvaluation, Now() + kPatience);
    if (worker.rank == 0) met = status;
    return status;
  };
  RunLocalJob(options, body);
  return met;
}

TEST(PatientExchange, WaitsForAWorkerThatIsFarBehind) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(MeetLateWorker(/*patient=*/false)));
  const absl::Status met = MeetLateWorker(/*patient=*/true);
  EXPECT_TRUE(met.ok()) << met;
}

}  // namespace
}  // namespace psring
