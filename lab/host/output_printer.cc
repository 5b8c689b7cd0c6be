#include "lab/host/output_printer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/trace/earlier_file.h"

namespace psring {
namespace {

// Readable on light and on dark terminals: green, yellow, blue, magenta, cyan.
constexpr const char* kColours[] = {"\033[32m", "\033[33m", "\033[34m",
                                    "\033[35m", "\033[36m"};
constexpr char kNoColour[] = "\033[0m";

// What another user has put there, such as an empty file, would show that user
// the log. False, and errno: it stays.
bool RemoveOfOthers(const std::string& path) {
  struct stat there = {};
  return lstat(path.c_str(), &there) != 0 || there.st_uid == geteuid() ||
         unlink(path.c_str()) == 0;
}

}  // namespace

absl::StatusOr<OutputPrinter> OutputPrinter::Create(FILE* out,
                                                    std::string log_dir) {
  if (!log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(log_dir, error);
    if (error || access(log_dir.c_str(), W_OK) != 0) {
      return absl::PermissionDeniedError(
          absl::StrCat("--log-dir=", log_dir, ": cannot write there",
                       error ? absl::StrCat(" (", error.message(), ")") : ""));
    }
  }
  return OutputPrinter(out, std::move(log_dir));
}

void OutputPrinter::Print(const std::string& name, absl::string_view line) {
  block_.Print(absl::StrCat(Prefix(name), line, "\n"));
  if (!log_dir_.empty()) Log(name, line);
}

std::string OutputPrinter::Prefix(const std::string& name) {
  auto [it, is_new] = prefixes_.try_emplace(name);
  if (is_new) {
    const char* colour = kColours[(prefixes_.size() - 1) % std::size(kColours)];
    it->second = coloured_
                     ? absl::StrCat(colour, "[", name, "]", kNoColour, " ")
                     : absl::StrCat("[", name, "] ");
  }
  return it->second;
}

void OutputPrinter::Log(const std::string& name, absl::string_view line) {
  auto [it, is_new] = logs_.try_emplace(name);
  const std::string path = absl::StrCat(
      log_dir_, "/", absl::StrReplaceAll(name, {{" ", "-"}}), ".log");
  if (is_new) {
    KeepEarlierFile(path);
    // The user's own: the address of the job's page, with its token, is in it.
    if (RemoveOfOthers(path)) {
      close(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      it->second.open(path);
    }
  } else if (!it->second.is_open()) {
    return;  // that was said
  }
  if (it->second) it->second << line << std::endl;
  if (it->second) return;
  it->second.close();
  block_.Print(absl::StrCat(
      "[job] --log-dir: cannot write ", path, " (", strerror(errno),
      "). The job continues; its output is shown here\n"));
}

}  // namespace psring
