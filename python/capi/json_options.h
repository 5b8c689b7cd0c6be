// Options as a JSON object: every key is taken by somebody, of the right type
// and within its bounds, or it is an error.
#ifndef PSRING_PYTHON_CAPI_JSON_OPTIONS_H_
#define PSRING_PYTHON_CAPI_JSON_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace psring {

// Nothing where it is none, or does not fit.
std::optional<int64_t> WholeNumber(const nlohmann::json& value);

// Keeps the first error. What is not there leaves the value as it is.
class JsonOptions {
 public:
  // INVALID_ARGUMENT where it is no JSON object, or is nested very deeply.
  // `what`: for errors.
  static absl::StatusOr<JsonOptions> Parse(const std::string& what,
                                           const std::string& text);
  JsonOptions(std::string what, nlohmann::json object)
      : what_(std::move(what)), object_(std::move(object)) {}

  void Text(const std::string& key, std::string& value);
  void OneOf(const std::string& key, std::string& value,
             const std::set<std::string>& names);
  void Flag(const std::string& key, bool& value);
  void Integer(const std::string& key, int64_t& value, int64_t min,
               int64_t max);
  void Integer(const std::string& key, int& value, int min, int max);
  void Number(const std::string& key, double& value, double min, double max);
  // Null: it is not there.
  const nlohmann::json* Array(const std::string& key);
  const nlohmann::json* Object(const std::string& key);

  void Fail(const std::string& key, const std::string& problem);

  // Whether it is there, and not null.
  bool Has(const std::string& key) { return Find(key) != nullptr; }

  // The first error; else one that names a key which nobody has asked for.
  absl::Status Finish() const;

 private:
  const nlohmann::json* Find(const std::string& key);

  std::string what_;
  nlohmann::json object_;
  std::set<std::string> asked_;
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_JSON_OPTIONS_H_
