#include "cli/top.h"

#include <unistd.h>

#include <functional>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/top_text.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "common/cluster/look.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "common/net/signals.h"
#include "common/page/job_state.h"
#include "common/page/web_client.h"
#include "common/printable.h"
#include "lab/host/terminal.h"
#include "protos/cluster.pb.h"

namespace psring {
namespace {

constexpr char kName[] = "psring top";

constexpr char kDescription[] =
    "Shows a running job: who is in it, at which step, how fast, and who waits "
    "for whom. Asks the job's coordinator, so the job needs no page; or asks a "
    "page, at the address that it has printed.";

constexpr char kExample[] =
    "On a terminal it draws anew every second until Ctrl-C or the job's end.\n"
    "Jobs that psring run or launch starts on one host have keys of their own: "
    "ask their page.\n"
    "Examples:\n"
    "  psring top 10.0.0.1:7000\n"
    "  psring top --once 'http://127.0.0.1:41234/?token=...'";

constexpr absl::Duration kInterval = absl::Seconds(1);
// Of --once: rates take so long.
constexpr int kLooksOfOnce = 4;
constexpr absl::Duration kPatience = absl::Seconds(5);

constexpr size_t kMostText = 4 << 20;

using Look = std::function<absl::StatusOr<proto::JobView>()>;

// The page's, of "http://HOST:PORT/?token=...".
absl::StatusOr<Look> LookAtPage(absl::string_view url) {
  absl::ConsumePrefix(&url, "http://");
  const size_t end = url.find('/');
  const auto server = ParseHostPort(url.substr(0, end));
  const size_t token = url.find("token=");
  if (!server.ok() || token == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "a page's address is http://HOST:PORT/?token=..., as its job has "
        "printed it");
  }
  const std::string target = absl::StrCat("/view?", url.substr(token));
  return [server = *server, target]() -> absl::StatusOr<proto::JobView> {
    const auto bytes = WebGet(server, target);
    if (!bytes.ok()) return bytes.status();
    proto::JobView view;
    if (view.ParseFromString(*bytes)) return view;
    return absl::InternalError(
        "what answers there is not a job's page of this "
        "version");
  };
}

absl::StatusOr<Look> LookAtCoordinator(const std::string& address,
                                       const SecurityWish& wish,
                                       Context& context,
                                       const Cancellation& cancellation) {
  const auto where = ParseHostPort(address);
  if (!where.ok()) return where.status();
  const auto host = Resolve(where->host);
  if (!host.ok()) return host.status();
  const auto security = FindSecurity(wish, ReadVariables());
  if (!security.ok()) return security.status();
  if (absl::Status s = context.Protect(security->secret); !s.ok()) return s;
  const std::string endpoint =
      absl::StrCat("tcp://", ToString(HostPort{*host, where->port}));
  // A connection for each question: one that belongs to no process of the job
  // ends after some seconds.
  return [&context, &cancellation, endpoint] {
    return LookAtJob(context, cancellation, endpoint, kPatience);
  };
}

// What answers need not be a job.
std::string Printed(const JobState& state) {
  return Printable(TopText(state), kMostText);
}

// What would wrap leaves the screen at the right.
std::string CutToWidth(absl::string_view text, int columns) {
  std::string cut;
  for (const absl::string_view line :
       absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&cut, line.substr(0, columns), "\n");
  }
  return cut;
}

// Drawn anew on the terminal. How a job has ended is never cut.
std::string Screen(const JobState& state) {
  const int columns = TerminalColumns(stdout);
  const std::string text = Printed(state);
  const bool over = state.view().state() == proto::JobView::OVER;
  return absl::StrCat("\x1b[H\x1b[J",
                      over || columns <= 0 ? text : CutToWidth(text, columns));
}

absl::Status Show(const Look& look, bool once,
                  const Cancellation& cancellation) {
  JobState state;
  for (int looks = 1;; ++looks) {
    const auto view = look();
    if (!view.ok()) {
      if (looks == 1 || once) return view.status();
      // A page ends with its job.
      std::cout << "No answer any more: the job has ended, or "
                << view.status().message() << std::endl;
      return absl::OkStatus();
    }
    state.Take(Now(), *view);
    if (!once) std::cout << Screen(state) << std::flush;
    const bool over = view->state() == proto::JobView::OVER;
    if (over || (once && looks == kLooksOfOnce)) break;
    if (absl::Status s = cancellation.SleepUntil(Now() + kInterval); !s.ok()) {
      return s;
    }
  }
  if (once) std::cout << Printed(state);
  return absl::OkStatus();
}

}  // namespace

int RunTop(const Args& args) {
  CommandLine line(kDescription, kName);
  std::string job;
  bool once = false;
  SecurityWish wish;
  line.Add("job", job,
           "HOST:PORT of the job's coordinator, or its page's address")
      .Required()
      .Default("")
      .TypeName("COORDINATOR");
  line.Add("--once", once,
           "Print one table, measured over three seconds, and exit. Always so "
           "without a terminal");
  line.Add("--key-file", wish.key_file,
           "File with the job's key; default: $PSRING_KEY_FILE, "
           "~/.config/psring/key");
  line.Add("--insecure", wish.insecure, "The job has no key");
  line.Footer(kExample);
  if (auto code = line.Parse(args)) return *code;
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  Context context;
  auto look = absl::StartsWith(job, "http://")
                  ? LookAtPage(job)
                  : LookAtCoordinator(job, wish, context, cancellation);
  if (absl::IsInvalidArgument(look.status())) {
    return line.UsageError(std::string(look.status().message()));
  }
  if (!look.ok()) return Fail(kName, look.status());
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const absl::Status status = Show(*look, once || !terminal, cancellation);
  if (status.ok()) return 0;
  const int signal = signals.received();
  return signal != 0
             ? Fail(kName, absl::CancelledError("interrupted"), 128 + signal)
             : Fail(kName, status);
}

}  // namespace psring
