#include "python/capi/json_options.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/shallow_json.h"

namespace psring {
namespace {

// An error shows a value, which takes a stack as deep. Options have 4.
constexpr int kMaxDepth = 16;

}  // namespace

std::optional<int64_t> WholeNumber(const nlohmann::json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

absl::StatusOr<JsonOptions> JsonOptions::Parse(const std::string& what,
                                               const std::string& text) {
  nlohmann::json object = ParseShallowObject(text, kMaxDepth);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what,
                     ": the options are no JSON object, or one of more "
                     "than ",
                     kMaxDepth, " levels"));
  }
  return JsonOptions(what, std::move(object));
}

const nlohmann::json* JsonOptions::Find(const std::string& key) {
  asked_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonOptions::Fail(const std::string& key, const std::string& problem) {
  status_.Update(
      absl::InvalidArgumentError(absl::StrCat(what_, ": ", key, " ", problem)));
}

void JsonOptions::Text(const std::string& key, std::string& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_string()) return Fail(key, "must be a text");
  value = found->get<std::string>();
}

void JsonOptions::OneOf(const std::string& key, std::string& value,
                        const std::set<std::string>& names) {
  Text(key, value);
  if (Find(key) == nullptr || names.contains(value)) return;
  Fail(key,
       absl::StrCat("is '", value, "'; it takes ", absl::StrJoin(names, ", ")));
}

void JsonOptions::Flag(const std::string& key, bool& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) return Fail(key, "must be true or false");
  value = found->get<bool>();
}

void JsonOptions::Integer(const std::string& key, int64_t& value, int64_t min,
                          int64_t max) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  const std::optional<int64_t> number = WholeNumber(*found);
  if (!number || *number < min || *number > max) {
    return Fail(
        key, absl::StrCat("is ", found->dump(),
                          "; it takes a whole number from ", min, " to ", max));
  }
  value = *number;
}

void JsonOptions::Integer(const std::string& key, int& value, int min,
                          int max) {
  int64_t wide = value;
  Integer(key, wide, min, max);
  value = static_cast<int>(wide);
}

void JsonOptions::Number(const std::string& key, double& value, double min,
                         double max) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  const double number = found->is_number()
                            ? found->get<double>()
                            : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= min && number <= max)) {
    return Fail(key, absl::StrCat("is ", found->dump(), "; it takes a number ",
                                  "from ", min, " to ", max));
  }
  value = number;
}

const nlohmann::json* JsonOptions::Array(const std::string& key) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr || found->is_array()) return found;
  Fail(key, "must be a list");
  return nullptr;
}

const nlohmann::json* JsonOptions::Object(const std::string& key) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr || found->is_object()) return found;
  Fail(key, "must be an object");
  return nullptr;
}

absl::Status JsonOptions::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (asked_.contains(key)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what_, ": the option '", key, "' is not known"));
  }
  return absl::OkStatus();
}

}  // namespace psring
