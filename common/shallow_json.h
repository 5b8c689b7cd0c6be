// JSON of a file that anybody may have written.
#ifndef PSRING_COMMON_SHALLOW_JSON_H_
#define PSRING_COMMON_SHALLOW_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

namespace psring {

// The object that `text` is; null where it is none, or nested deeper than
// `max_depth`: a megabyte of brackets would take many of memory.
nlohmann::json ParseShallowObject(const std::string& text, int max_depth);

}  // namespace psring

#endif  // PSRING_COMMON_SHALLOW_JSON_H_
