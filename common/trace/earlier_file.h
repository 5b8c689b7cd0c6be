// What an earlier run has left under the name of a file that is made anew.
#ifndef PSRING_COMMON_TRACE_EARLIER_FILE_H_
#define PSRING_COMMON_TRACE_EARLIER_FILE_H_

#include <string>

namespace psring {

// Renames a file that is not empty to PATH.1, or to the first number that is
// free: it may say why the run before has ended. Where that fails the file
// stays, to be written over.
void KeepEarlierFile(const std::string& path);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_EARLIER_FILE_H_
