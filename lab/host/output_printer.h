// Prints the lines of several processes, each with its process's name before
// it, and keeps them in files.
#ifndef PSRING_LAB_HOST_OUTPUT_PRINTER_H_
#define PSRING_LAB_HOST_OUTPUT_PRINTER_H_

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

class OutputPrinter {
 public:
  // Colours the names when `out` is a terminal. `log_dir` empty: no files; else
  // it is made where it is missing, and "worker 0" goes to worker-0.log there.
  static absl::StatusOr<OutputPrinter> Create(FILE* out, std::string log_dir);

  void Print(const std::string& name, absl::string_view line);

 private:
  OutputPrinter(FILE* out, bool coloured, std::string log_dir)
      : out_(out), coloured_(coloured), log_dir_(std::move(log_dir)) {}

  std::string Prefix(const std::string& name);
  void Log(const std::string& name, absl::string_view line);

  FILE* out_;
  bool coloured_;
  std::string log_dir_;
  std::map<std::string, std::string> prefixes_;
  std::map<std::string, std::ofstream> logs_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_OUTPUT_PRINTER_H_
