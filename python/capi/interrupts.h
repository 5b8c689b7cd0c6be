// SIGINT while a foreign program waits in here. The program's own handler stays
// in charge: it is called as ever; what waits is cancelled besides, so that
// the handler's wish is heard before the wait's deadline.
#ifndef PSRING_PYTHON_CAPI_INTERRUPTS_H_
#define PSRING_PYTHON_CAPI_INTERRUPTS_H_

#include "common/net/cancellation.h"

namespace psring {

// While one lives, SIGINT cancels `cancellation`, which lives as long as the
// process. Cheap: one call of sigaction.
class InterruptScope {
 public:
  explicit InterruptScope(Cancellation& cancellation);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Whether SIGINT has come since it began.
  bool interrupted() const;
};

// In a child of fork, which shares the parent's descriptors.
void ForgetInterrupts();

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_INTERRUPTS_H_
