#include "common/process/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace psring {
namespace {

// CLI::Range, whose comparisons let pass what is not a number: "nan".
class NumberRange : public CLI::Validator {
 public:
  NumberRange(double least, double most)
      : CLI::Validator(CLI::Range(least, most)) {
    func_ = [within = func_](std::string& text) {
      double value = 0;
      if (CLI::detail::lexical_cast(text, value) && std::isnan(value)) {
        return text + " is not a number";
      }
      return within(text);
    };
  }
};

bool HasShortEquals(const std::string& arg) {
  return arg.size() > 2 && arg[0] == '-' && absl::ascii_isalpha(arg[1]) &&
         arg[2] == '=';
}

// "-n=4" as "-n4": CLI11 would take "=4" for the value.
std::string WithoutShortEquals(std::string arg) {
  if (HasShortEquals(arg)) arg.erase(2, 1);
  return arg;
}

// "--x=", of an unset variable, say: CLI11 would take the next argument for the
// value.
bool LacksItsValue(const std::string& arg) {
  const bool is_long = arg.size() > 3 && arg.compare(0, 2, "--") == 0;
  return (is_long || HasShortEquals(arg)) && arg.find('=') == arg.size() - 1;
}

// "--x" before another flag, which CLI11 would take for the value of x; not of
// lists, whose values may be flags.
bool StandsBeforeAFlag(const CLI::App& app, const std::string& arg,
                       const std::string& next) {
  const auto find = [&](const std::string& text) -> const CLI::Option* {
    const std::string name = text.substr(0, text.find('='));
    return name.compare(0, 2, "--") == 0 ? app.get_option_no_throw(name)
                                         : nullptr;
  };
  const CLI::Option* const option =
      arg.find('=') == arg.npos ? find(arg) : nullptr;
  return option != nullptr && option->get_items_expected_min() > 0 &&
         option->get_items_expected_max() == 1 && find(next) != nullptr;
}

template <typename T>
Flag AddWithDefault(CLI::App& app, const std::string& name, T& value,
                    const std::string& help) {
  return Flag(app.add_option(name, value, help)->capture_default_str());
}

}  // namespace

Flag& Flag::Range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag& Flag::Range(double least, double most) {
  option_->check(NumberRange(least, most));
  return *this;
}

Flag& Flag::OneOf(std::initializer_list<const char*> values) {
  return OneOf(std::vector<std::string>(values.begin(), values.end()));
}

Flag& Flag::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Flag& Flag::Check(std::function<std::string(const std::string&)> check) {
  option_->check(std::move(check));
  return *this;
}

Flag& Flag::Required() {
  option_->required();
  return *this;
}

Flag& Flag::Excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

Flag& Flag::Group(const std::string& name) {
  option_->group(name);
  return *this;
}

Flag& Flag::Hidden() {
  option_->group("")->take_last();
  return *this;
}

Flag& Flag::Default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Flag& Flag::TypeName(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

Flag& Flag::Repeatable() {
  option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

CommandLine::CommandLine(const std::string& description,
                         const std::string& name)
    : owned_(std::make_unique<CLI::App>(description, name)), app_(*owned_) {}

CommandLine::CommandLine(CLI::App* subcommand) : app_(*subcommand) {}

CommandLine::~CommandLine() = default;

Flag CommandLine::Add(const std::string& name, std::string& value,
                      const std::string& help) {
  return AddWithDefault(app_, name, value, help);
}

Flag CommandLine::Add(const std::string& name, int& value,
                      const std::string& help) {
  return AddWithDefault(app_, name, value, help);
}

Flag CommandLine::Add(const std::string& name, int64_t& value,
                      const std::string& help) {
  return AddWithDefault(app_, name, value, help);
}

Flag CommandLine::Add(const std::string& name, uint64_t& value,
                      const std::string& help) {
  return AddWithDefault(app_, name, value, help);
}

Flag CommandLine::Add(const std::string& name, double& value,
                      const std::string& help) {
  return AddWithDefault(app_, name, value, help);
}

Flag CommandLine::Add(const std::string& name, std::vector<std::string>& values,
                      const std::string& help) {
  return Flag(app_.add_option(name, values, help));
}

Flag CommandLine::Add(const std::string& name, bool& value,
                      const std::string& help) {
  return Flag(app_.add_flag(name, value, help));
}

Flag CommandLine::AddWithImplied(const std::string& name,
                                 const std::string& implied, std::string& value,
                                 const std::string& help) {
  return Flag(app_.add_flag(name + "{" + implied + "}", value, help));
}

void CommandLine::Footer(const std::string& text) { app_.footer(text); }

void CommandLine::Version(std::function<std::string()> text) {
  app_.set_version_flag("--version", std::move(text));
}

std::string CommandLine::name() const { return app_.get_name(); }

CommandLine& CommandLine::AddSubcommand(const std::string& name,
                                        const std::string& description) {
  app_.require_subcommand(1);
  CLI::App* const subcommand = app_.add_subcommand(name, description);
  subcommands_.emplace_back(new CommandLine(subcommand));
  return *subcommands_.back();
}

bool CommandLine::chosen() const { return app_.parsed(); }

std::optional<int> CommandLine::Parse(const std::vector<std::string>& args) {
  return ParseAll(args, "");
}

std::optional<int> CommandLine::ParseBeforeDashes(
    const std::vector<std::string>& args, const std::string& takes,
    std::vector<std::string>& rest) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const bool none = dashes == args.end();
  rest.assign(none ? dashes : dashes + 1, args.end());
  return ParseAll({args.begin(), dashes},
                  none ? absl::StrCat("; ", takes, " go after `--`") : "");
}

std::optional<int> CommandLine::ParseAll(const std::vector<std::string>& args,
                                         const std::string& hint) {
  std::vector<std::string> plain;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    const bool before_flag =
        i + 1 < args.size() && StandsBeforeAFlag(app_, arg, args[i + 1]);
    if (before_flag || LacksItsValue(arg)) {
      return UsageError(
          absl::StrCat(arg, " has no value: give one, or leave the flag out"));
    }
    plain.push_back(WithoutShortEquals(arg));
  }
  // CLI11 takes the last one first.
  std::reverse(plain.begin(), plain.end());
  try {
    app_.parse(std::move(plain));
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return app_.exit(help);
  } catch (const CLI::ExtrasError&) {
    // Its own text has them in the other order.
    const std::vector<std::string> extras = app_.remaining(/*recurse=*/true);
    return UsageError(absl::StrCat(
        extras.size() == 1 ? "The following argument was not expected: "
                           : "The following arguments were not expected: ",
        absl::StrJoin(extras, " "), hint));
  } catch (const CLI::RequiredError& error) {
    return UsageError(WhatIsRequired(error.what()));
  } catch (const CLI::Error& error) {
    return UsageError(error.what());
  }
}

// CLI11 does not say what was given where a subcommand is missing.
std::string CommandLine::WhatIsRequired(const std::string& what) const {
  if (subcommands_.empty() || !app_.get_subcommands().empty()) return what;
  const std::vector<std::string> given = app_.remaining();
  std::vector<std::string> known;
  for (const auto& subcommand : subcommands_) {
    known.push_back(subcommand->name());
  }
  return absl::StrCat(
      given.empty() ? "a subcommand is missing"
                    : absl::StrCat("there is no subcommand '", given[0], "'"),
      ": give ", absl::StrJoin(known, " or "));
}

int CommandLine::UsageError(const std::string& what) const {
  std::string line = what;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::cerr << app_.get_name() << ": " << line << " (see " << app_.get_name()
            << " --help)" << std::endl;
  return kExitUsage;
}

bool CommandLine::Has(const std::string& name) const {
  return app_.count(name) > 0;
}

std::vector<CommandLine::FlagValue> CommandLine::All() const {
  std::vector<FlagValue> all;
  for (const CLI::Option* option : app_.get_options()) {
    const bool hidden = option->get_group().empty();
    const bool tells_of_itself =
        option == app_.get_help_ptr() || option == app_.get_version_ptr();
    if (hidden || tells_of_itself) continue;
    all.push_back({option->get_name(),
                   option->empty() ? option->get_default_str()
                                   : absl::StrJoin(option->results(), ",")});
  }
  return all;
}

}  // namespace psring
