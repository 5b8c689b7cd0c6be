#include "common/process/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "common/log.h"

namespace psring {

namespace {

rlimit found = {};
bool changed = false;

}  // namespace

void AllowAllFiles() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  if (!changed) found = files;
  changed = true;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

void AllowFiles(int more) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  std::error_code error;
  const auto open = std::distance(
      std::filesystem::directory_iterator("/proc/self/fd", error), {});
  const auto wanted = static_cast<rlim_t>(open + more);
  if (files.rlim_cur >= wanted) return;
  if (files.rlim_max < wanted) {
    LogWarning(
        "this process may have $0 files open, and a job of this size may need "
        "$1: raise the limit (ulimit -Hn $1)",
        files.rlim_max, wanted);
  }
  files.rlim_cur = std::min(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
}

void RestoreFileLimit() {
  if (changed) setrlimit(RLIMIT_NOFILE, &found);
}

}  // namespace psring
