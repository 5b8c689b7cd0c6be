#include "common/page/web_server.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "civetweb.h"
#include "common/clock.h"
#include "common/net/cancellation.h"

namespace psring {
namespace {

// What a slow reader may take at once: each part has a deadline of its own.
constexpr size_t kPartBytes = 64 << 10;
constexpr char kPatienceMs[] = "5000";
constexpr absl::Duration kBegin = absl::Seconds(2);
constexpr absl::Duration kKnock = absl::Milliseconds(20);

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// Nobody may frame the page, guess its kind, keep it, or learn its address
// from a link; what it loads is in it or comes from here.
constexpr char kHeaders[] =
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Connection: close\r\n";

// civetweb's threads inherit that signals are not theirs; and it would leave
// SIGPIPE ignored in the whole process, and in those that it starts.
class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
    sigaction(SIGPIPE, nullptr, &pipe_);
  }
  ~QuietSignals() {
    sigaction(SIGPIPE, &pipe_, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_;
  struct sigaction pipe_;
};

// Connects, and goes.
void Knock(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(),
                  &hints, &found) != 0) {
    return;
  }
  const int fd =
      socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    [[maybe_unused]] int soon = connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

std::string WebRequest::path() const {
  const char* uri = mg_get_request_info(connection_)->local_uri;
  return uri == nullptr ? "" : uri;
}

std::string WebRequest::query() const {
  const char* query = mg_get_request_info(connection_)->query_string;
  return query == nullptr ? "" : query;
}

std::string WebRequest::Header(const char* name) const {
  const char* value = mg_get_header(connection_, name);
  return value == nullptr ? "" : value;
}

void WebRequest::Respond(int status, absl::string_view content_type,
                         absl::string_view body,
                         absl::string_view more_headers) {
  if (Write(absl::StrCat("HTTP/1.1 ", status, " ", ReasonOf(status),
                         "\r\nContent-Type: ", content_type,
                         "\r\nContent-Length: ", body.size(), "\r\n",
                         more_headers, kHeaders, "\r\n"))) {
    Write(body);
  }
}

void WebRequest::BeginStream(absl::string_view content_type) {
  Write(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", content_type, "\r\n",
                     kHeaders, "\r\n"));
}

bool WebRequest::Write(absl::string_view text) {
  while (!text.empty()) {
    const absl::string_view part = text.substr(0, kPartBytes);
    if (mg_write(connection_, part.data(), part.size()) !=
        static_cast<int>(part.size())) {
      return false;
    }
    text.remove_prefix(part.size());
  }
  return true;
}

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(
    const HostPort& address, std::function<void(WebRequest&)> answer) {
  const auto host = Resolve(address.host);
  if (!host.ok()) return host.status();
  if (absl::StrContains(*host, ':')) {  // Debian builds civetweb without IPv6
    return absl::UnimplementedError(
        absl::StrCat("cannot listen on ", *host, ", only on IPv4 addresses"));
  }
  std::unique_ptr<WebServer> server(new WebServer(std::move(answer)));
  server->address_ = {*host, address.port};
  const std::string where = ToString(server->address_);
  const std::string threads = absl::StrCat(kThreads);
  const char* options[] = {"listening_ports",
                           where.c_str(),
                           "num_threads",
                           threads.c_str(),
                           "connection_queue",
                           "16",
                           "listen_backlog",
                           "16",
                           "max_request_size",
                           "8192",
                           "request_timeout_ms",
                           kPatienceMs,
                           "tcp_nodelay",
                           "1",
                           "access_control_allow_origin",
                           "",
                           "access_control_allow_methods",
                           "",
                           nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = OnRequest;
  callbacks.log_message = OnLog;
  callbacks.init_thread = OnThread;
  mg_init_data init = {&callbacks, server.get(), options};
  unsigned code = 0;
  char text[256] = "";
  mg_error_data error = {&code, text, sizeof(text)};
  {
    const QuietSignals quiet;
    server->context_ = mg_start2(&init, &error);
    // Each of its threads, and the one that listens, ignores SIGPIPE for all as
    // it begins.
    const Time end = Now() + kBegin;
    while (server->context_ != nullptr && server->threads_ <= kThreads &&
           Now() < end) {
      std::this_thread::yield();
    }
  }
  if (server->context_ == nullptr) {
    const std::string& why = server->first_error_;
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", where, ": ", why.empty() ? text : why.c_str()));
  }
  mg_server_port port = {};
  if (mg_get_server_ports(server->context_, 1, &port) == 1) {
    server->address_.port = port.port;
  }
  return server;
}

WebServer::~WebServer() {
  if (context_ == nullptr) return;
  // Its listener looks every two seconds whether it shall end, and whenever
  // somebody connects.
  Cancellation stopped;
  std::thread stop([this, &stopped] {
    mg_stop(context_);
    stopped.Cancel(absl::CancelledError("stopped"));
  });
  while (stopped.SleepUntil(Now() + kKnock).ok()) Knock(address_);
  stop.join();
}

int WebServer::OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  WebRequest request(connection);
  const std::string method =
      info->request_method == nullptr ? "" : info->request_method;
  if (method != "GET") {
    request.Respond(405, "text/plain", "GET only\n", "Allow: GET\r\n");
    return 405;
  }
  static_cast<WebServer*>(info->user_data)->answer_(request);
  return 200;
}

void* WebServer::OnThread(const mg_context* context, int /*kind*/) {
  ++static_cast<WebServer*>(mg_get_user_data(context))->threads_;
  return nullptr;
}

// civetweb tells of its start's errors here alone; what readers do wrong is
// nobody's worry.
int WebServer::OnLog(const mg_connection* connection, const char* message) {
  const mg_context* context = mg_get_context(connection);
  auto* server = static_cast<WebServer*>(mg_get_user_data(context));
  if (server != nullptr && pthread_equal(pthread_self(), server->starter_) &&
      server->first_error_.empty()) {
    server->first_error_ = message;
  }
  return 1;
}

}  // namespace psring
