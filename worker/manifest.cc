#include "worker/manifest.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/fnv.h"
#include "common/shallow_json.h"
#include "common/state/file.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;
constexpr int kFormatWithoutCursor = 1;
constexpr int64_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 4;

std::string PathIn(const std::string& checkpoint) {
  return absl::StrCat(checkpoint, "/", kManifestFile);
}

std::string TextOf(const json& manifest) { return manifest.dump(2) + "\n"; }

uint32_t CrcOf(const json& manifest) {
  const std::string text = manifest.dump();
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()),
            static_cast<uInt>(text.size())));
}

json JsonOf(const Manifest& manifest) {
  const Progress& progress = manifest.progress;
  const proto::SampleCursor cursor =
      progress.cursor.value_or(proto::SampleCursor());
  json files = json::object();
  for (const auto& [name, sum] : manifest.files) {
    files[name] = {{"bytes", sum.size_bytes}, {"crc32", sum.crc}};
  }
  json object = {
      {"format", kFormat},
      {"step", progress.step},
      {"cursor", {{"epoch", cursor.epoch()}, {"samples", cursor.samples()}}},
      {"dataset_size", progress.dataset_size},
      {"workers", progress.num_workers},
      {"batch_size", progress.batch_size},
      {"seed", progress.seed},
      {"model", progress.model},
      {"data", progress.data},
      {"optimizer", progress.optimizer},
      {"files", files}};
  if (progress.updates.has_value()) object["updates"] = *progress.updates;
  if (progress.bucket_bytes > 0) {
    object["bucket_bytes"] = progress.bucket_bytes;
  }
  object["crc32"] = CrcOf(object);
  return object;
}

// Reads the fields of an object that may have any; `ok` tells whether all were
// there and right.
class Fields {
 public:
  Fields(const json& object, bool* ok) : object_(object), ok_(ok) {}

  int64_t Number(const char* key, int64_t max = INT64_MAX) {
    const json value = Value(key);
    const uint64_t number =
        value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
    *ok_ &= number <= static_cast<uint64_t>(max);
    return *ok_ ? static_cast<int64_t>(number) : 0;
  }

  std::string Text(const char* key) {
    const json value = Value(key);
    *ok_ &= value.is_string();
    return value.is_string() ? value.get<std::string>() : "";
  }

  json Object(const char* key) {
    json value = Value(key);
    *ok_ &= value.is_object();
    return value.is_object() ? value : json::object();
  }

 private:
  json Value(const char* key) const {
    return object_.is_object() && object_.contains(key) ? object_[key] : json();
  }

  const json& object_;
  bool* const ok_;
};

// False where the object is not what a manifest must be.
bool ReadFields(const json& object, bool has_cursor, Manifest& manifest) {
  bool ok = true;
  Fields fields(object, &ok);
  Progress& progress = manifest.progress;
  progress.step = fields.Number("step");
  progress.num_workers = fields.Number("workers", INT32_MAX);
  progress.batch_size = fields.Number("batch_size", INT32_MAX);
  progress.seed = fields.Number("seed");
  progress.model = fields.Text("model");
  progress.data = fields.Text("data");
  progress.optimizer = fields.Text("optimizer");
  if (object.contains("updates")) progress.updates = fields.Number("updates");
  if (object.contains("bucket_bytes")) {
    progress.bucket_bytes = fields.Number("bucket_bytes");
  }
  if (has_cursor) {
    progress.dataset_size = fields.Number("dataset_size");
    const json place = fields.Object("cursor");
    Fields cursor(place, &ok);
    progress.cursor.emplace();
    progress.cursor->set_epoch(cursor.Number("epoch"));
    progress.cursor->set_samples(cursor.Number(
        "samples", std::max<int64_t>(progress.dataset_size - 1, 0)));
  }
  const json files = fields.Object("files");
  for (const auto& [name, file] : files.items()) {
    Fields sum(file, &ok);
    const auto size = static_cast<uint64_t>(sum.Number("bytes"));
    manifest.files[name] = {
        size, static_cast<uint32_t>(sum.Number("crc32", UINT32_MAX))};
  }
  return ok;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const auto file = File::Open(path, O_RDONLY);
  if (!file.ok()) return file.status();
  const auto size = file->Size();
  if (!size.ok()) return size.status();
  if (*size > kMaxBytes) {
    return absl::DataLossError(
        absl::StrCat(path, " of ", *size, " bytes is no manifest"));
  }
  std::string text(*size, '\0');
  absl::Status read = file->ReadAt(0, text.data(), *size);
  return read.ok() ? absl::StatusOr<std::string>(std::move(text)) : read;
}

}  // namespace

absl::Status WriteManifest(const std::string& checkpoint,
                           const Manifest& manifest) {
  const std::string path = PathIn(checkpoint);
  std::string text;
  try {
    text = TextOf(JsonOf(manifest));
  } catch (const json::exception& error) {  // a name that is not UTF-8
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", error.what()));
  }
  auto file = File::Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return file.status();
  const auto size = static_cast<int64_t>(text.size());
  if (absl::Status s = file->WriteAt(0, text.data(), size); !s.ok()) return s;
  return file->Sync();
}

absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint) {
  const std::string path = PathIn(checkpoint);
  const auto text = ReadText(path);
  if (!text.ok()) return text.status();
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat(path, " is damaged"));
  };
  json object = ParseShallowObject(*text, kMaxDepth);
  if (!object.is_object() || *text != TextOf(object)) return damaged();
  const json crc = object.value("crc32", json());
  object.erase("crc32");
  if (!crc.is_number_unsigned() || crc != CrcOf(object)) return damaged();
  const json format = object.value("format", json());
  if (format != kFormat && format != kFormatWithoutCursor) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was written by another version of psring"));
  }
  Manifest manifest;
  if (!ReadFields(object, format == kFormat, manifest)) return damaged();
  return manifest;
}

absl::StatusOr<uint64_t> DigestOfManifest(const std::string& checkpoint) {
  const auto text = ReadText(PathIn(checkpoint));
  if (!text.ok()) return text.status();
  return Fnv().Add(*text).value();
}

}  // namespace psring
