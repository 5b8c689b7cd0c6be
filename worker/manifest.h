// A checkpoint's manifest.json: how far the run was, with what settings, and
// what its files must be. Its own checksum is a part of it.
//
//   format 2  today's
//   format 1  without the cursor and the size of the data set
#ifndef PSRING_WORKER_MANIFEST_H_
#define PSRING_WORKER_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"

namespace psring {

inline constexpr char kManifestFile[] = "manifest.json";

// How far the run was, and with what settings.
struct Progress {
  int64_t step = 0;
  // What is consumed of the data; empty in format 1, where it follows from the
  // step, the number of workers and the batch size.
  std::optional<proto::SampleCursor> cursor;
  // Updates that the optimizer has made; empty in older manifests.
  std::optional<int64_t> updates;
  int64_t dataset_size = 0;  // training samples; 0 in format 1
  int64_t num_workers = 0;
  int64_t batch_size = 0;
  int64_t seed = 0;
  int64_t bucket_bytes = 0;  // 0: an older manifest, which does not say
  std::string model;
  std::string data;
  std::string optimizer;
};

// What a whole file of a checkpoint is like.
struct FileSum {
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
};

struct Manifest {
  Progress progress;
  std::map<std::string, FileSum> files;  // by name
};

// Writes it into `checkpoint` and syncs it. INVALID_ARGUMENT where a name is
// not UTF-8; the errors of File.
absl::Status WriteManifest(const std::string& checkpoint,
                           const Manifest& manifest);

// Every error names the file: DATA_LOSS where it is damaged, NOT_FOUND where it
// is not there, FAILED_PRECONDITION where it has a format unknown here.
absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint);

// Of the manifest's text, as it is. The errors of File.
absl::StatusOr<uint64_t> DigestOfManifest(const std::string& checkpoint);

}  // namespace psring

#endif  // PSRING_WORKER_MANIFEST_H_
