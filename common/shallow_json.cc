#include "common/shallow_json.h"

namespace psring {

using nlohmann::json;

json ParseShallowObject(const std::string& text, int max_depth) {
  bool too_deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, const json&) {
    too_deep |= depth > max_depth;
    return depth <= max_depth;
  };
  json object = json::parse(text, shallow, /*allow_exceptions=*/false);
  return too_deep || !object.is_object() ? json() : object;
}

}  // namespace psring
