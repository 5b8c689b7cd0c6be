#include "common/page/job_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/net/keys.h"
#include "common/page/metrics_text.h"
#include "common/page/page_html.h"
#include "common/page/page_json.h"
#include "common/page/page_token.h"

namespace psring {
namespace {

// Some threads are left for whoever asks once.
constexpr int kMaxStreams = WebServer::kThreads - 4;
// So that a reader that has gone is noticed.
constexpr absl::Duration kSilence = absl::Seconds(3);
constexpr absl::Duration kLastWord = absl::Seconds(1);

// Where a reader of this host finds what listens everywhere.
std::string ReachedAt(const HostPort& address) {
  return ToString(
      {IsAnyAddress(address.host) ? HostName() : address.host, address.port});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobPage>> JobPage::Start(
    const std::string& address, const std::string& token_file) {
  const auto where = ParseHostPort(address);
  if (!where.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--page: ", where.status().message()));
  }
  auto token = PageToken(token_file);
  if (!token.ok()) return token.status();
  std::unique_ptr<JobPage> page(new JobPage());
  page->token_ = *std::move(token);
  page->html_ = PageHtml();
  JobPage* self = page.get();
  auto server = WebServer::Start(
      *where, [self](WebRequest& request) { self->Answer(request); });
  if (!server.ok()) {
    return absl::Status(
        server.status().code(),
        absl::StrCat("--page: ", server.status().message(),
                     ". Give another address, or --page alone"));
  }
  page->server_ = *std::move(server);
  const HostPort& listens = page->server_->address();
  page->url_ =
      absl::StrCat("http://", ReachedAt(listens), "/?token=", page->token_);
  // Wanted, whatever the level of the log.
  LogBare(absl::StrCat("psring: the job's page: ", page->url_, "\n"));
  if (!IsLoopback(listens.host)) {
    LogWarning(
        "the page listens on $0 in plain HTTP: who reads the network reads the "
        "token. docs/monitoring.md shows how to tunnel it",
        ToString(listens));
  }
  return page;
}

JobPage::~JobPage() {
  if (server_ == nullptr) return;
  MutexLock lock(&mutex_);
  ending_ = true;
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return streams_ == 0;
  };
  mutex_.AwaitUntil(none, Now() + kLastWord);
}

void JobPage::Show(Time now, const proto::JobView& view) {
  MutexLock lock(&mutex_);
  shown_.state.Take(now, view);
  ++shown_.version;
}

void JobPage::BeginJob(std::string title) {
  MutexLock lock(&mutex_);
  shown_.state = JobState();
  ++shown_.series.jobs;
  shown_.series.title = std::move(title);
  ++shown_.version;
}

void JobPage::Keep(EarlierJob job) {
  MutexLock lock(&mutex_);
  shown_.series.earlier.push_back(std::move(job));
  ++shown_.version;
}

JobPage::Shown JobPage::Copy() {
  MutexLock lock(&mutex_);
  return shown_;
}

void JobPage::Answer(WebRequest& request) {
  const std::string shown =
      ShownToken(request.Header("Authorization"), request.query());
  if (!SameText(shown, token_)) {
    return request.Respond(shown.empty() ? 401 : 403, "text/plain",
                           "The address must end with the token that psring "
                           "has printed: ?token=...\n",
                           "WWW-Authenticate: Bearer\r\n");
  }
  const std::string path = request.path();
  if (path == "/") {
    request.Respond(200, "text/html; charset=utf-8", html_);
  } else if (path == "/state") {
    Seen nothing;
    const Shown shown = Copy();
    request.Respond(200, "application/json",
                    ToJson(shown.state, shown.series, nothing));
  } else if (path == "/metrics") {
    request.Respond(200, kMetricsContentType, MetricsText(Copy().state));
  } else if (path == "/view") {
    request.Respond(200, "application/octet-stream",
                    Copy().state.view().SerializeAsString());
  } else if (path == "/events") {
    Stream(request);
  } else {
    request.Respond(404, "text/plain", "/, /events, /state or /metrics\n");
  }
}

bool JobPage::AddStream() {
  MutexLock lock(&mutex_);
  if (streams_ >= kMaxStreams || ending_) return false;
  ++streams_;
  return true;
}

void JobPage::Stream(WebRequest& request) {
  if (!AddStream()) {
    request.Respond(503, "text/plain", "enough readers look at the page\n");
    return;
  }
  request.BeginStream("text/event-stream");
  Seen seen;
  int64_t version = 0;
  bool last = false;
  while (!last) {
    Shown shown;
    {
      MutexLock lock(&mutex_);
      const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return shown_.version != version || ending_;
      };
      mutex_.AwaitUntil(news, Now() + kSilence);
      last = ending_;
      if (shown_.version != version) shown = shown_;
    }
    const bool news = shown.version > 0;
    if (news) version = shown.version;
    const std::string event =
        news ? absl::StrCat("data: ", ToJson(shown.state, shown.series, seen),
                            "\n\n")
             : ":\n\n";
    if (!request.Write(event)) break;
  }
  if (last) request.Write("event: end\ndata: {}\n\n");
  MutexLock lock(&mutex_);
  --streams_;
}

absl::StatusOr<CoordinatorWatch> StartPage(const std::string& address,
                                           const std::string& token_file) {
  auto page = JobPage::Start(address, token_file);
  if (!page.ok()) return page.status();
  // Functions can be copied: shared, so that the last one ends it.
  std::shared_ptr<JobPage> shared = *std::move(page);
  return [shared](Time now, const proto::JobView& view) {
    shared->Show(now, view);
  };
}

absl::StatusOr<CoordinatorWatch> StartPage(const ClusterOptions& options) {
  if (options.page.empty() || !options.placement.hosts_coordinator) {
    return nullptr;
  }
  return StartPage(options.page, options.page_token_file);
}

}  // namespace psring
