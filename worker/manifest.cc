#include "worker/manifest.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace psring {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;
constexpr int kFormatWithoutCursor = 1;

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
  object["crc32"] = CrcOf(object);
  return object;
}

Manifest ManifestOf(const json& object) {
  Manifest manifest;
  Progress& progress = manifest.progress;
  progress.step = object.at("step");
  progress.num_workers = object.at("workers");
  progress.batch_size = object.at("batch_size");
  progress.seed = object.at("seed");
  progress.model = object.at("model");
  progress.data = object.at("data");
  progress.optimizer = object.at("optimizer");
  if (object.at("format") != kFormatWithoutCursor) {
    progress.dataset_size = object.at("dataset_size");
    progress.cursor.emplace();
    progress.cursor->set_epoch(object.at("cursor").at("epoch"));
    progress.cursor->set_samples(object.at("cursor").at("samples"));
  }
  for (const auto& [name, sum] : object.at("files").items()) {
    manifest.files[name] = {sum.at("bytes"), sum.at("crc32")};
  }
  return manifest;
}

}  // namespace

absl::Status WriteManifest(const std::string& checkpoint,
                           const Manifest& manifest) {
  const std::string path = PathIn(checkpoint);
  std::ofstream out(path);
  out << TextOf(JsonOf(manifest));
  out.close();
  if (!out) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return ok ? absl::OkStatus()
            : absl::InternalError(
                  absl::StrCat("cannot sync ", path, ": ", strerror(error)));
}

absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint) {
  const std::string path = PathIn(checkpoint);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  json object = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, " ", what));
  };
  if (!file) return damaged("cannot be read");
  if (!object.is_object() || !object.contains("crc32") ||
      !object["crc32"].is_number_unsigned() || text.str() != TextOf(object)) {
    return damaged("is damaged");
  }
  const json crc = object["crc32"];
  object.erase("crc32");
  if (crc != CrcOf(object)) return damaged("is damaged");
  const json format = object["format"];
  if (format != kFormat && format != kFormatWithoutCursor) {
    return damaged("was written by another version of psring");
  }
  return ManifestOf(object);
}

}  // namespace psring
