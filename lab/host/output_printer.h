// Prints the lines of several processes, each with its process's name before
// it, and keeps them in files. Below them, on a terminal, a block of lines.
#ifndef PSRING_LAB_HOST_OUTPUT_PRINTER_H_
#define PSRING_LAB_HOST_OUTPUT_PRINTER_H_

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/colours.h"
#include "lab/host/terminal.h"

namespace psring {

class OutputPrinter {
 public:
  // Colours the names where `out` takes colours. `log_dir` empty: no files;
  // else it is made where it is missing, and "worker 0" goes to worker-0.log
  // there, made anew (see earlier_file.h). One that cannot be written is said
  // once.
  static absl::StatusOr<OutputPrinter> Create(FILE* out, std::string log_dir);

  void Print(const std::string& name, absl::string_view line);
  LiveBlock& block() { return block_; }

 private:
  OutputPrinter(FILE* out, std::string log_dir)
      : block_(out),
        coloured_(TakesColours(out)),
        log_dir_(std::move(log_dir)) {}

  std::string Prefix(const std::string& name);
  void Log(const std::string& name, absl::string_view line);

  LiveBlock block_;
  bool coloured_;
  std::string log_dir_;
  std::map<std::string, std::string> prefixes_;
  std::map<std::string, std::ofstream> logs_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_OUTPUT_PRINTER_H_
