#include "common/page/web_query.h"

#include "civetweb.h"

namespace psring {

std::string QueryValue(absl::string_view query, const char* name) {
  char value[256];
  const int length =
      mg_get_var(query.data(), query.size(), name, value, sizeof(value));
  return length < 0 ? "" : std::string(value, static_cast<size_t>(length));
}

}  // namespace psring
