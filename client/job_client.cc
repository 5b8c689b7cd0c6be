#include "client/job_client.h"

#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/page/job_page.h"

namespace psring {
namespace {

// A failing worker has nothing to wait for but its message's way out.
constexpr absl::Duration kFailedLeave = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<JobClient>> JobClient::Start(
    const ClusterOptions& options, Cancellation& cancellation) {
  std::unique_ptr<JobClient> client(new JobClient(options, cancellation));
  auto page = StartPage(options);
  if (!page.ok()) return page.status();
  auto session = ClusterSession::Start(client->context_, cancellation, options,
                                       *std::move(page));
  if (!session.ok()) return session.status();
  client->session_ = *std::move(session);
  return client;
}

absl::StatusOr<std::unique_ptr<JobClient>> JobClient::Join(
    const ClusterOptions& options, Cancellation& cancellation) {
  auto client = Start(options, cancellation);
  if (!client.ok()) return client;
  if (absl::Status s = (*client)->Join(); !s.ok()) return s;
  return client;
}

absl::Status JobClient::Leave(const absl::Status& result,
                              absl::Duration patience) {
  return member().Leave(result,
                        Now() + (result.ok() ? patience : kFailedLeave));
}

}  // namespace psring
