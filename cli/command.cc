#include "cli/command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/process/page_flags.h"

namespace psring {

void AddBinaryFlags(CommandLine& line, Binaries& binaries) {
  line.Add("--ps-binary", binaries.ps, "").Hidden();
  line.Add("--worker-binary", binaries.worker, "").Hidden();
  line.Add("--rank-binary", binaries.rank, "").Hidden();
}

void AddSecurityFlags(CommandLine& line, SecurityWish& wish,
                      bool several_hosts) {
  line.Add(
      "--key-file", wish.key_file,
      absl::StrCat(
          "File with the job's key, as psring keygen writes it; "
          "default: $PSRING_KEY_FILE, else a key that this job "
          "alone has",
          several_hosts ? " (on several hosts: ~/.config/psring/key)" : ""));
  line.Add("--insecure", wish.insecure,
           "No key: whoever reaches the job's processes may take part, and "
           "reads what they send");
  line.Add("--require-encryption", wish.require_encryption,
           "Refuse a job of which anything travels in the clear");
}

void AddPageFlags(CommandLine& line, std::string& page,
                  std::string& token_file) {
  line.AddWithImplied("--page", kDefaultPage, page, kPageHelp)
      .TypeName("HOST:PORT");
  line.Add("--page-token-file", token_file, kPageTokenHelp);
}

absl::Status CheckPageFlags(const CommandLine& line, const std::string& page) {
  if (!page.empty()) {
    const absl::Status s = ParseHostPort(page).status();
    return s.ok() ? s : OfFlag("--page", s);
  }
  if (!line.Has("--page-token-file")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--page-token-file is for a page: give --page, too");
}

absl::Status OfFlag(const std::string& flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

int Fail(const std::string& command, const absl::Status& status,
         int exit_code) {
  LogBare(absl::StrCat(command, ": ", status.message(), "\n"));
  return exit_code;
}

int ExitCode(const std::string& command, const absl::Status& status,
             int signal) {
  if (signal != 0) {
    return Fail(command,
                absl::CancelledError("interrupted; all processes have ended"),
                128 + signal);
  }
  return status.ok() ? 0 : Fail(command, status);
}

absl::Status CheckProgram(const std::string& program) {
  // Another obstacle is told of when it is started.
  if (access(program.c_str(), X_OK) == 0 || errno != ENOENT) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot run ", program, ": ", strerror(errno),
      " (remedy: ./psring build, in a clone: the wheel has no built-in trainer "
      "and no benchmarks; psring run and psring compare train a script given "
      "after --)"));
}

std::string Quoted(const Args& args) {
  return absl::StrJoin(args, " ", [](std::string* text, const auto& arg) {
    const bool plain = !arg.empty() && absl::c_all_of(arg, [](unsigned char c) {
      return absl::ascii_isalnum(c) || absl::StrContains("-_=+,.:/@%", c);
    });
    absl::StrAppend(
        text, plain
                  ? arg
                  : absl::StrCat(
                        "'", absl::StrReplaceAll(arg, {{"'", "'\\''"}}), "'"));
  });
}

std::string CommandText(const std::string& command, const Args& args) {
  return args.empty() ? command : absl::StrCat(command, " ", Quoted(args));
}

std::string DateAndTime() {
  return absl::FormatTime("%Y-%m-%d %H:%M %Z", WallNow(),
                          absl::LocalTimeZone());
}

}  // namespace psring
