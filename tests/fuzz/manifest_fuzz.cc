// worker/manifest.h: a checkpoint's manifest.json, damaged or made up.
#include <zlib.h>

#include <utility>

#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz.h"
#include "worker/manifest.h"

namespace psring::fuzz {
namespace {

using nlohmann::json;

Manifest SomeManifest() {
  Manifest manifest;
  Progress& progress = manifest.progress;
  progress.step = 812;
  progress.cursor.emplace();
  progress.cursor->set_epoch(2);
  progress.cursor->set_samples(640);
  progress.updates = 800;
  progress.dataset_size = 60000;
  progress.num_workers = 4;
  progress.batch_size = 64;
  progress.seed = 7;
  progress.model = "lenet";
  progress.data = "mnist";
  progress.optimizer = "momentum";
  manifest.files["model.safetensors"] = {1234, 0xdeadbeef};
  manifest.files["optimizer.safetensors"] = {99, 1};
  return manifest;
}

std::string TextOf(const Manifest& manifest) {
  Require(WriteManifest(ScratchFolder(), manifest).ok(),
          "a manifest can be written");
  return ReadScratch(kManifestFile);
}

// Past the checksum, which no search would find: as whoever makes one up would
// write it.
std::string Sealed(const std::string& text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return text;
  object.erase("crc32");
  const std::string body = object.dump();
  object["crc32"] = crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                          static_cast<uInt>(body.size()));
  return object.dump(2) + "\n";
}

void RequireSame(const Manifest& a, const Manifest& b) {
  Require(a.progress.step == b.progress.step &&
              a.progress.updates == b.progress.updates &&
              a.progress.dataset_size == b.progress.dataset_size &&
              a.progress.num_workers == b.progress.num_workers &&
              a.progress.batch_size == b.progress.batch_size &&
              a.progress.seed == b.progress.seed &&
              a.progress.model == b.progress.model &&
              a.progress.data == b.progress.data &&
              a.progress.optimizer == b.progress.optimizer &&
              a.files.size() == b.files.size(),
          "what was read can be written and read again");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string text = TextOf(SomeManifest());
  json old = json::parse(text);
  old["format"] = 1;
  old.erase("cursor");
  old.erase("dataset_size");
  old.erase("updates");
  return {
      Input().Byte(0).Rest(text).bytes(),
      Input().Byte(1).Rest(text).bytes(),
      Input().Byte(1).Rest(old.dump()).bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const bool sealed = input.Flag();
  const std::string text = input.Rest();
  fuzz::WriteScratch(kManifestFile, sealed ? fuzz::Sealed(text) : text);
  const auto manifest = ReadManifest(fuzz::ScratchFolder());
  if (!manifest.ok()) {
    fuzz::RequireReason(manifest.status());
    return 0;
  }
  const Progress& progress = manifest->progress;
  fuzz::Require(progress.step >= 0 && progress.num_workers >= 0 &&
                    progress.batch_size >= 0 && progress.dataset_size >= 0,
                "numbers are not negative");
  if (progress.cursor) {
    fuzz::Require(WriteManifest(fuzz::ScratchFolder(), *manifest).ok(),
                  "what was read can be written");
    const auto again = ReadManifest(fuzz::ScratchFolder());
    fuzz::Require(again.ok(), "and read");
    fuzz::RequireSame(*manifest, *again);
  }
  return 0;
}
