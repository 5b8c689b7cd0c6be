// Whether a stream shows colours.
#ifndef PSRING_COMMON_COLOURS_H_
#define PSRING_COMMON_COLOURS_H_

#include <cstdio>

namespace psring {

// Whether `out` is a terminal that can move its cursor (not TERM=dumb).
bool IsTerminal(FILE* out);

// Only such a terminal, and not where NO_COLOR is set (https://no-color.org).
bool TakesColours(FILE* out);

}  // namespace psring

#endif  // PSRING_COMMON_COLOURS_H_
