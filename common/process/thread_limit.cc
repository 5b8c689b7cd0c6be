#include "common/process/thread_limit.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

const std::string* program_name = nullptr;
std::terminate_handler others = nullptr;

// The log has a thread of its own, which may be the one that is missing.
void TellAndEnd() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::system_error& error) {
    if (IsOfNoThread(error)) {
      dprintf(STDERR_FILENO, "%s: %s\n", program_name->c_str(),
              CannotStartThread(error).c_str());
      _exit(1);
    }
  } catch (const std::bad_alloc&) {  // so this allocates none
    dprintf(STDERR_FILENO, "%s: there is not enough memory. %s\n",
            program_name->c_str(), kRaiseMemoryLimit);
    _exit(1);
  } catch (...) {
  }
  if (others != nullptr) others();
  std::abort();
}

}  // namespace

bool IsOfNoThread(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

std::string CannotStartThread(const std::system_error& error) {
  return absl::StrCat("cannot start a thread: ", error.what(), ". ",
                      kRaiseProcessLimit);
}

void EndWhereNoThreadStarts(const std::string& program) {
  static const auto& name = *new std::string(program);  // outlives main
  program_name = &name;
  const std::terminate_handler before = std::set_terminate(TellAndEnd);
  if (before != TellAndEnd) others = before;
}

}  // namespace psring
