// A command's line of flags, bound to values: the only door to CLI11, whose
// headers take longer to compile than most of our files.
#ifndef PSRING_COMMON_PROCESS_COMMAND_LINE_H_
#define PSRING_COMMON_PROCESS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace psring {

// The exit code for a command line that is wrong.
inline constexpr int kExitUsage = 2;

// Restricts a flag that CommandLine has added; CommandLine owns it.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  // Values outside are refused, with the bounds.
  Flag& Range(int64_t least, int64_t most);
  Flag& Range(int least, int most) {
    return Range(int64_t{least}, int64_t{most});
  }
  // NaN is refused too.
  Flag& Range(double least, double most);
  Flag& OneOf(std::initializer_list<const char*> values);
  Flag& OneOf(const std::vector<std::string>& values);
  // `check` returns what is wrong with a value, or nothing.
  Flag& Check(std::function<std::string(const std::string&)> check);
  Flag& Required();
  // Not together with that flag, which has been added before.
  Flag& Excludes(const std::string& other);
  // Under which heading --help shows it.
  Flag& Group(const std::string& name);
  // Not in --help, and the last of several values counts.
  Flag& Hidden();
  // What --help shows as the default, in place of the value's own; may be
  // empty.
  Flag& Default(const std::string& text);
  // What --help shows for the value: "LIST".
  Flag& TypeName(const std::string& name);
  // Of a list: each "--flag value" adds one value.
  Flag& OneValueEach();
  // The same, and --help shows it as a flag of one value.
  Flag& Repeatable();

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  // `name` is what the user types: "psring bench".
  CommandLine(const std::string& description, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Binds `value`, which must outlive the parsing; --help shows what it holds
  // now as its default. A name without dashes is a positional argument.
  Flag Add(const std::string& name, std::string& value,
           const std::string& help);
  Flag Add(const std::string& name, int& value, const std::string& help);
  Flag Add(const std::string& name, int64_t& value, const std::string& help);
  Flag Add(const std::string& name, uint64_t& value, const std::string& help);
  Flag Add(const std::string& name, double& value, const std::string& help);
  Flag Add(const std::string& name, std::vector<std::string>& values,
           const std::string& help);
  // A flag without a value.
  Flag Add(const std::string& name, bool& value, const std::string& help);
  // "--name" alone means "--name=IMPLIED".
  Flag AddWithImplied(const std::string& name, const std::string& implied,
                      std::string& value, const std::string& help);

  // What --help ends with.
  void Footer(const std::string& text);
  // Says what --version prints.
  void Version(std::function<std::string()> text);

  std::string name() const;

  // One of the subcommands is required as soon as there is one; this object
  // owns it.
  CommandLine& AddSubcommand(const std::string& name,
                             const std::string& description);
  // Whether the user chose this subcommand.
  bool chosen() const;

  // `args` lack the program's and the command's names. A value: the exit code
  // to end with at once, after --help was printed or one line on stderr said
  // which flag is wrong, with its value and what is allowed.
  std::optional<int> Parse(const std::vector<std::string>& args);
  // The same of what stands before the first `--`; `rest` becomes what follows
  // it, and `takes` says whose that is: "the workers' flags".
  std::optional<int> ParseBeforeDashes(const std::vector<std::string>& args,
                                       const std::string& takes,
                                       std::vector<std::string>& rest);

  // Prints the line that Parse prints, for errors that it cannot see. Returns
  // kExitUsage.
  int UsageError(const std::string& what) const;

  // Whether the user gave the flag.
  bool Has(const std::string& name) const;

  // Every flag but --help, --version and hidden ones, in the order of their
  // adding.
  struct FlagValue {
    std::string name;   // "--sizes"
    std::string value;  // as typed, several joined by commas; else its default
  };
  std::vector<FlagValue> All() const;

 private:
  // `hint` goes after the error of an argument that is none.
  std::optional<int> ParseAll(const std::vector<std::string>& args,
                              const std::string& hint);
  std::string WhatIsRequired(const std::string& what) const;

  explicit CommandLine(CLI::App* subcommand);

  const std::unique_ptr<CLI::App> owned_;  // null in a subcommand
  CLI::App& app_;
  std::vector<std::unique_ptr<CommandLine>> subcommands_;
};

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_COMMAND_LINE_H_
