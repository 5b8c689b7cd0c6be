#include "common/process/open_files.h"

#include <sys/resource.h>

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

void RestoreFileLimit() {
  if (changed) setrlimit(RLIMIT_NOFILE, &found);
}

}  // namespace psring
