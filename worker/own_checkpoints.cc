#include "worker/own_checkpoints.h"

#include "worker/checkpoint_directory.h"
#include "worker/manifest.h"

namespace psring {

void OwnCheckpoints::Add(const std::string& checkpoint) {
  if (const auto digest = DigestOfManifest(checkpoint); digest.ok()) {
    digests_.insert(*digest);
  }
}

void OwnCheckpoints::AddAllIn(const std::string& directory) {
  const auto present = CheckpointsIn(directory);
  if (!present.ok()) return;
  for (const CheckpointEntry& entry : *present) Add(entry.path);
}

bool OwnCheckpoints::IsOthers(const std::string& checkpoint) const {
  const auto digest = DigestOfManifest(checkpoint);
  return digest.ok() && digests_.count(*digest) == 0;
}

}  // namespace psring
