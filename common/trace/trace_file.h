// A JSON array of events on disk that is valid at every moment, also when the
// process is killed, and that stays below a size.
//
// The closing bracket lies ahead, behind a region of spaces, and events are
// written over the spaces, before it. The kernel writes within a page whole or
// not at all, so no write crosses one. Only when the region is used up and the
// bracket moves on, once a MiB, do two writes belong together.
#ifndef PSRING_COMMON_TRACE_TRACE_FILE_H_
#define PSRING_COMMON_TRACE_TRACE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// One thread's own.
class TraceFile {
 public:
  static constexpr int64_t kPageBytes = 4096;
  static constexpr int64_t kRegionBytes = 1 << 20;

  // An empty array. `max_bytes`: a multiple of kRegionBytes.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(
      const std::string& path, int64_t max_bytes);

  // Cuts the spaces off.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Adds one event, a JSON text of less than half a page, to the page that the
  // next Flush writes at the latest. RESOURCE_EXHAUSTED: the file is as large
  // as it may be; what is then still to say has a page, with `last_words`.
  // Other errors name the file; it stays valid after them.
  absl::Status Append(absl::string_view event, bool last_words = false);
  absl::Status Flush();

 private:
  TraceFile(std::string path, int fd, int64_t max_bytes)
      : path_(std::move(path)), fd_(fd), max_bytes_(max_bytes) {}

  absl::Status WriteAt(int64_t offset, absl::string_view bytes);
  // Moves the closing bracket on.
  absl::Status Extend();
  int64_t Room() const;

  const std::string path_;
  const int fd_;
  const int64_t max_bytes_;
  int64_t end_ = 1;     // where the closing bracket is
  int64_t offset_ = 1;  // where page_ goes
  std::string page_;    // not written yet
  bool empty_ = true;
};

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_TRACE_FILE_H_
