#include "common/page/web_client.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "civetweb.h"

namespace psring {
namespace {

constexpr size_t kMostBytes = 64 << 20;
constexpr int kPatienceMs = 5000;

}  // namespace

absl::StatusOr<std::string> WebGet(const HostPort& server,
                                   const std::string& target) {
  const std::string where = ToString(server);
  char error[256] = "";
  mg_connection* connection = mg_connect_client(
      server.host.c_str(), server.port, /*use_ssl=*/0, error, sizeof(error));
  if (connection == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("nobody listens at ", where, " (", error, ")"));
  }
  mg_printf(connection, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", target.c_str(),
            where.c_str());
  absl::Status status;
  std::string body;
  if (mg_get_response(connection, error, sizeof(error), kPatienceMs) < 0) {
    status = absl::UnavailableError(
        absl::StrCat("no answer from ", where, ": ", error));
  } else if (const mg_response_info* info = mg_get_response_info(connection);
             info->status_code != 200) {
    status = absl::PermissionDeniedError(
        absl::StrCat(where, " answers ", info->status_code, " ",
                     info->status_text == nullptr ? "" : info->status_text));
  } else {
    char bytes[65536];
    int size = 0;
    while (body.size() < kMostBytes &&
           (size = mg_read(connection, bytes, sizeof(bytes))) > 0) {
      body.append(bytes, size);
    }
  }
  mg_close_connection(connection);
  if (!status.ok()) return status;
  return body;
}

}  // namespace psring
