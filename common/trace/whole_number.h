// Whole numbers of JSON files that somebody else may have written.
#ifndef PSRING_COMMON_TRACE_WHOLE_NUMBER_H_
#define PSRING_COMMON_TRACE_WHOLE_NUMBER_H_

#include <cstdint>
#include <nlohmann/json.hpp>

namespace psring {

// What comes after the point is cut off. Throws json::type_error where `value`
// is no number, or one that an int64_t cannot hold, for which get() has no
// defined result.
inline int64_t WholeOf(const nlohmann::json& value) {
  constexpr double kMost = 9.2e18;
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number >= -kMost && number <= kMost) {
      return static_cast<int64_t>(number);
    }
  }
  return value.get_ref<const nlohmann::json::number_integer_t&>();
}

// The same of a field of an object; 0 where it has none.
inline int64_t WholeOrZero(const nlohmann::json& object, const char* key) {
  return object.contains(key) ? WholeOf(object.at(key)) : 0;
}

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_WHOLE_NUMBER_H_
