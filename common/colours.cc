#include "common/colours.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace psring {

bool IsTerminal(FILE* out) {
  const char* terminal = std::getenv("TERM");
  // Open MPI gives each process a pseudo-terminal and mixes what they print.
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  return !by_mpirun && isatty(fileno(out)) != 0 &&
         (terminal == nullptr || absl::string_view(terminal) != "dumb");
}

bool TakesColours(FILE* out) {
  const char* no_colour = std::getenv("NO_COLOR");
  return IsTerminal(out) && (no_colour == nullptr || no_colour[0] == '\0');
}

}  // namespace psring
