// A small HTTP server for people and tools to look at something: GET only, no
// files, so many connections and threads and no more. The only door to
// civetweb.
#ifndef PSRING_COMMON_PAGE_WEB_SERVER_H_
#define PSRING_COMMON_PAGE_WEB_SERVER_H_

#include <pthread.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/address.h"

struct mg_connection;
struct mg_context;

namespace psring {

// One request, on a thread of the server's. Answered by Respond, or by
// BeginStream and Writes.
class WebRequest {
 public:
  explicit WebRequest(mg_connection* connection) : connection_(connection) {}

  std::string path() const;
  // What follows "?"; empty: there is none.
  std::string query() const;
  std::string Header(const char* name) const;

  void Respond(int status, absl::string_view content_type,
               absl::string_view body, absl::string_view more_headers = "");
  // The body comes in parts, for as long as the caller likes.
  void BeginStream(absl::string_view content_type);
  // False: the reader is gone, or has read nothing for seconds.
  bool Write(absl::string_view text);

 private:
  mg_connection* const connection_;
};

class WebServer {
 public:
  static constexpr int kThreads = 12;

  // `answer` is called by up to kThreads threads at once; it returns soon once
  // the server ends. Errors: an address that is not this host's, a port that is
  // taken or not allowed.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(
      const HostPort& address, std::function<void(WebRequest&)> answer);

  // Ends connections, and its threads.
  ~WebServer();

  // Where it listens, numeric, with the port that the system chose.
  const HostPort& address() const { return address_; }

 private:
  explicit WebServer(std::function<void(WebRequest&)> answer)
      : answer_(std::move(answer)) {}
  static int OnRequest(mg_connection* connection);
  static void* OnThread(const mg_context* context, int kind);
  static int OnLog(const mg_connection* connection, const char* message);

  const std::function<void(WebRequest&)> answer_;
  HostPort address_;
  const pthread_t starter_ = pthread_self();
  std::string first_error_;       // its thread's
  std::atomic<int> threads_ = 0;  // that have begun
  mg_context* context_ = nullptr;
};

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_WEB_SERVER_H_
