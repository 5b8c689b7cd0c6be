#include "common/state/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/shallow_json.h"

namespace psring {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kDataAlignBytes = 64;
constexpr int kMaxDepth = 3;  // an object of objects, with lists

std::optional<int64_t> DTypeBytes(const std::string& dtype) {
  for (const char* one : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"}) {
    if (dtype == one) return 1;
  }
  for (const char* two : {"I16", "U16", "F16", "BF16"}) {
    if (dtype == two) return 2;
  }
  for (const char* four : {"I32", "U32", "F32"}) {
    if (dtype == four) return 4;
  }
  for (const char* eight : {"I64", "U64", "F64", "C64"}) {
    if (dtype == eight) return 8;
  }
  return std::nullopt;
}

absl::Status Bad(const std::string& what) { return absl::DataLossError(what); }

// `name` in quotes, whatever bytes it has.
std::string Quoted(const std::string& name) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name), "\"");
}

absl::StatusOr<std::string> QuotedJson(const std::string& name) {
  try {
    return json(name).dump();
  } catch (const json::exception&) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor name ", Quoted(name), " is not UTF-8"));
  }
}

// Appends the array's numbers; false where it is anything else.
bool ReadNumbers(const json& object, const char* key,
                 std::vector<int64_t>& numbers) {
  const auto array = object.find(key);
  if (array == object.end() || !array->is_array()) return false;
  for (const json& item : *array) {
    if (!item.is_number_unsigned()) return false;
    const uint64_t number = item.get<uint64_t>();
    if (number > INT64_MAX) return false;
    numbers.push_back(static_cast<int64_t>(number));
  }
  return true;
}

absl::StatusOr<TensorEntry> ParseEntry(const std::string& name,
                                       const json& object) {
  TensorEntry entry;
  entry.name = name;
  std::vector<int64_t> offsets;
  const bool is_object = object.is_object();
  const auto dtype = is_object ? object.find("dtype") : object.end();
  if (!is_object || dtype == object.end() || !dtype->is_string() ||
      !ReadNumbers(object, "shape", entry.shape) ||
      !ReadNumbers(object, "data_offsets", offsets) || offsets.size() != 2) {
    return Bad(absl::StrCat("tensor ", Quoted(name),
                            " lacks a dtype, a shape or two data_offsets"));
  }
  entry.dtype = dtype->get<std::string>();
  std::tie(entry.begin, entry.end) = std::pair(offsets[0], offsets[1]);
  absl::StatusOr<int64_t> bytes = TensorBytes(entry.dtype, entry.shape);
  if (!bytes.ok()) {
    return Bad(
        absl::StrCat("tensor ", Quoted(name), ": ", bytes.status().message()));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return Bad(absl::StrCat("tensor ", Quoted(name), " of ", *bytes,
                            " bytes has the data_offsets [", entry.begin, ",",
                            entry.end, "]"));
  }
  return entry;
}

absl::Status CheckTiling(const std::vector<TensorEntry>& entries,
                         int64_t data_bytes) {
  int64_t end = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != end) {
      return Bad(absl::StrCat("tensor ", Quoted(entry.name), " begins at byte ",
                              entry.begin, " of the data; the one before it ",
                              "ends at ", end));
    }
    end = entry.end;
  }
  if (end == data_bytes) return absl::OkStatus();
  return Bad(absl::StrCat("its tensors take ", end, " bytes, but ", data_bytes,
                          " bytes follow the header"));
}

}  // namespace

absl::StatusOr<int64_t> TensorBytes(const std::string& dtype,
                                    const std::vector<int64_t>& shape) {
  const std::optional<int64_t> element = DTypeBytes(dtype);
  if (!element.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype ", Quoted(dtype)));
  }
  int64_t bytes = *element;
  bool overflow = false;
  for (const int64_t dimension : shape) {
    overflow |= dimension < 0;
    overflow |= __builtin_mul_overflow(bytes, dimension, &bytes);
  }
  if (!overflow) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(
      "no tensor can have the shape [", absl::StrJoin(shape, ","), "]"));
}

absl::StatusOr<std::string> LayOutSafetensors(absl::Span<TensorEntry> entries) {
  std::string header = absl::StrCat("{\"", kMetadata, "\":{\"format\":\"pt\"}");
  std::unordered_set<std::string> names = {kMetadata};
  int64_t end = 0;
  for (TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tensor name ", Quoted(entry.name), " is already taken"));
    }
    absl::StatusOr<std::string> name = QuotedJson(entry.name);
    if (!name.ok()) return name.status();
    absl::StatusOr<int64_t> bytes = TensorBytes(entry.dtype, entry.shape);
    if (!bytes.ok()) return bytes.status();
    entry.begin = end;
    if (__builtin_add_overflow(end, *bytes, &end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("no file can hold tensor ", Quoted(entry.name), " too"));
    }
    entry.end = end;
    absl::StrAppend(&header, ",", *name, ":{\"dtype\":\"", entry.dtype,
                    "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                    "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  header += "}";
  while ((kSafetensorsLengthBytes + header.size()) % kDataAlignBytes != 0) {
    header += ' ';
  }
  if (header.size() > kSafetensorsMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        entries.size(), " tensors need a header of ", header.size(),
        " bytes; at most ", kSafetensorsMaxHeaderBytes, " are allowed"));
  }
  std::string length;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    length += static_cast<char>(header.size() >> (8 * i));
  }
  return length + header;
}

absl::StatusOr<int64_t> ParseSafetensorsLength(const char* length,
                                               int64_t file_bytes) {
  uint64_t header = 0;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    header |= uint64_t{static_cast<unsigned char>(length[i])} << (8 * i);
  }
  if (header > kSafetensorsMaxHeaderBytes ||
      static_cast<int64_t>(header) > file_bytes - kSafetensorsLengthBytes) {
    return Bad(absl::StrCat("a header of ", header, " bytes in a file of ",
                            file_bytes, " bytes"));
  }
  return static_cast<int64_t>(header);
}

absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(
    const std::string& header, int64_t data_bytes) {
  const json root = ParseShallowObject(header, kMaxDepth);
  if (!root.is_object()) return Bad("its header is no JSON object of tensors");
  std::vector<TensorEntry> entries;
  for (const auto& [name, object] : root.items()) {
    if (name == kMetadata) continue;
    absl::StatusOr<TensorEntry> entry = ParseEntry(name, object);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  // Tensors without elements come before the one that begins where they do.
  std::sort(entries.begin(), entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  if (absl::Status status = CheckTiling(entries, data_bytes); !status.ok()) {
    return status;
  }
  return entries;
}

}  // namespace psring
