// Standard input, output and errors.
#ifndef PSRING_COMMON_PROCESS_STANDARD_FILES_H_
#define PSRING_COMMON_PROCESS_STANDARD_FILES_H_

namespace psring {

// Opens /dev/null in place of those that the caller has closed. Otherwise the
// next file that the process opens takes their number, and log lines are
// written into it. Call it first thing in main.
void OpenStandardFiles();

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_STANDARD_FILES_H_
