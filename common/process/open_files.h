// How many files this process may have open.
#ifndef PSRING_COMMON_PROCESS_OPEN_FILES_H_
#define PSRING_COMMON_PROCESS_OPEN_FILES_H_

namespace psring {

// As many as the system allows it. Each connection is a file: the limit that
// shells give, 1,024, is for programs that use select().
void AllowAllFiles();

// For a program that may use select(): that many more than are open, where the
// limit is lower. Where the system does not allow them, a warning says what
// does.
void AllowFiles(int more);

// What it was before the first AllowAllFiles, for a program that may use
// select(). Async-signal-safe: between fork and exec.
void RestoreFileLimit();

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_OPEN_FILES_H_
