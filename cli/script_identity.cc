#include "cli/script_identity.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/cluster/environment.h"
#include "lab/study/weights.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

// Those of docs/python.md that change a training and that no axis sets.
constexpr const char* kVariables[] = {"PSRING_UPDATE", "PSRING_BUCKET_MB",
                                      "PSRING_GPU", "PSRING_OWN_SERVERS"};

// A file, but no program such as an interpreter.
bool IsScriptFile(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return absl::string_view(start, sizeof(start)) !=
         "\x7f"
         "ELF";
}

// So many files, and bytes of each, are looked at.
constexpr size_t kMostFiles = 1000;
constexpr size_t kMostBytes = 4 << 20;
// Of a statement: the search takes stack.
constexpr size_t kLongest = 2000;

std::string Read(const fs::path& path) {
  std::string text(kMostBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// The lines without comments; those that a parenthesis or a backslash joins to
// an import are one.
std::vector<std::string> StatementsOf(const std::string& text) {
  std::vector<std::string> statements;
  bool open = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find('#')));
    const bool joined = absl::EndsWith(line, "\\");
    line = absl::StripSuffix(line, "\\");
    if (open) {
      absl::StrAppend(&statements.back(), " ", line);
    } else {
      statements.emplace_back(line);
    }
    const std::string& all = statements.back();
    const bool parenthesis =
        absl::StrContains(all, "import") && absl::StrContains(all, "(") &&
        !absl::StrContains(all, ")") && all.size() < kLongest;
    open = joined || parenthesis;
  }
  return statements;
}

// "a.b" of "import a.b", "from a.b import c" and "import x, a.b as d"; of
// "from . import c" and "from .e import c" in the package `package` its name
// and "package.e"; all that they may mean.
std::vector<std::string> ModulesOf(const std::string& text,
                                   const std::string& package) {
  static const std::regex* const statement = new std::regex(
      R"(^[ \t]*(?:import[ \t]+([^#;]+)|from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([^#;]+)))");
  std::vector<std::string> modules;
  for (const std::string& line : StatementsOf(text)) {
    std::smatch match;
    if (line.size() > kLongest || !std::regex_search(line, match, *statement)) {
      continue;
    }
    std::string from = match[2].str();
    if (absl::StartsWith(from, ".")) {
      const size_t dots = std::min(from.find_first_not_of('.'), from.size());
      std::vector<std::string> outer = absl::StrSplit(package, '.');
      outer.resize(outer.size() - std::min(outer.size(), dots - 1));
      if (dots < from.size()) outer.push_back(from.substr(dots));
      from = absl::StrJoin(outer, ".");
    }
    if (!from.empty()) modules.push_back(from);
    const std::string names = match[1].str() + match[3].str();
    for (absl::string_view name : absl::StrSplit(names, ',')) {
      name = absl::StripAsciiWhitespace(name.substr(0, name.find(" as ")));
      name = absl::StripPrefix(absl::StripSuffix(name, ")"), "(");
      name = absl::StripAsciiWhitespace(name);
      modules.push_back(from.empty() ? std::string(name)
                                     : absl::StrCat(from, ".", name));
    }
  }
  return modules;
}

}  // namespace

std::vector<std::string> ImportedFiles(const std::string& script) {
  const fs::path folder = fs::path(script).parent_path();
  std::set<std::string> found;
  // Files yet to be read, and the package that each is in.
  std::vector<std::pair<std::string, std::string>> open = {{script, ""}};
  const auto add = [&](const fs::path& path, const std::string& package) {
    std::error_code ignored;
    if (found.size() >= kMostFiles || path == fs::path(script) ||
        !fs::is_regular_file(path, ignored)) {
      return;
    }
    if (found.insert(path.string()).second) open.push_back({path, package});
  };
  while (!open.empty()) {
    const auto [file, package] = open.back();
    open.pop_back();
    for (const std::string& module : ModulesOf(Read(file), package)) {
      fs::path path = folder;
      std::string within;
      // Of each package on the way to it, too.
      for (const absl::string_view part : absl::StrSplit(module, '.')) {
        path /= std::string(part);
        add(path.string() + ".py", within);
        absl::StrAppend(&within, within.empty() ? "" : ".", part);
        add(path / "__init__.py", within);
      }
    }
  }
  return {found.begin(), found.end()};
}

std::map<std::string, std::string> DescribeFiles(const Args& files) {
  std::map<std::string, std::string> described;
  for (const std::string& file : files) {
    const std::string name = absl::StrCat("the file ", file);
    if (described.contains(name)) continue;
    if (const auto crc = Crc32OfFile(file); crc.ok()) {
      described[name] = absl::StrFormat("CRC-32 %08x", *crc);
    }
  }
  return described;
}

std::map<std::string, std::string> DescribeScript(const Args& command) {
  const auto script = absl::c_find_if(command, IsScriptFile);
  Args files = {script == command.end() ? command[0] : *script};
  // That file may be what starts the training: bash's, or a Python that pyenv
  // chooses.
  for (const std::string& file : command) {
    if (!absl::EndsWith(file, ".py") || !IsScriptFile(file)) continue;
    const Args imported = ImportedFiles(file);
    files.push_back(file);
    files.insert(files.end(), imported.begin(), imported.end());
  }
  std::map<std::string, std::string> described = DescribeFiles(files);
  const Variables variables = ReadVariables();
  for (const char* name : kVariables) {
    const auto found = variables.find(name);
    if (found != variables.end()) described[name] = found->second;
  }
  return described;
}

}  // namespace psring
