#include "cli/compare_flags.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lab/study/study_axes.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

constexpr char kExample[] =
    "+FLAG=VALUE after a way goes to its workers only.\n"
    "Example: two ways on your own digits, four workers, three seeds\n"
    "  psring compare --modes=ps-bsp,ring --workers=4 --seeds=3 "
    "--data=mnist:/data/mnist\n"
    "and your own script, beside torch.distributed\n"
    "  psring compare --modes=ring,ps-bsp,ps-async,ddp --workers=2,4 "
    "-- python3 train.py";

std::string CheckTarget(const std::string& text) {
  double target = 0;
  if (text == "auto") return "";
  if (absl::SimpleAtod(text, &target) && target > 0 && target <= 1) return "";
  return absl::StrCat("\"", text, "\" is not auto or above 0 and at most 1");
}

std::string CheckTargetLoss(const std::string& text) {
  double target = 0;
  if (text == "auto" ||
      (absl::SimpleAtod(text, &target) && std::isfinite(target))) {
    return "";
  }
  return absl::StrCat("\"", text, "\" is neither auto nor a number");
}

void AddAxisFlags(CommandLine& line, CompareFlags& flags) {
  flags.axes.resize(Axes().size());
  for (size_t i = 0; i < Axes().size(); ++i) {
    const Axis& axis = Axes()[i];
    line.Add(axis.flag, flags.axes[i], axis.help)
        .Repeatable()
        .Default(InitialText(axis))
        .TypeName(axis.kind == AxisKind::kWhole ? "SPEC" : "LIST");
  }
}

}  // namespace

void AddCompareFlags(CommandLine& line, CompareFlags& flags) {
  AddAxisFlags(line, flags);
  line.Add("--model", flags.model, "Model; see psring worker --help");
  line.Add("--data", flags.data, "Training data; see psring worker --help");
  line.Add("--epochs", flags.epochs,
           "Passes over the training data in each run")
      .Range(1, 1000000);
  line.Add("--steps", flags.steps,
           "Steps of each run, in place of --epochs; 0: --epochs counts")
      .Range(int64_t{0}, int64_t{1} << 40)
      .Excludes("--epochs");
  line.Add("--batch-size", flags.batch_size, "Samples of each worker in a step")
      .Range(1, 1000000);
  line.Add("--lr", flags.lr, "Learning rate").Range(0.0, 1e6);
  line.Add("--momentum", flags.momentum,
           "Momentum of the optimizer; with --optimizer=sgd, a value above 0 "
           "selects momentum: give --momentum=0 for plain SGD")
      .Range(0.0, 1.0);
  line.Add("--optimizer", flags.optimizer,
           "Optimizer; see psring worker --help");
  line.Add("--seed", flags.seed, "First seed of weights, batches and dropout")
      .Range(int64_t{0}, int64_t{1} << 40);
  line.Add("--target-accuracy", flags.target,
           "Accuracy to which times are measured, such as 0.93; auto: the "
           "highest that all ways reach with every seed, leaving out ways "
           "that end more than a tenth below the best")
      .Check(CheckTarget);
  line.Add("--target-loss", flags.target_loss,
           "Judges by the loss at evaluations in place of the accuracy: the "
           "loss to which times are measured, such as 0.3; auto: the lowest "
           "that all ways reach, leaving out ways that end far above the best. "
           "A script that logs a test_loss and no accuracy is judged so anyway")
      .Check(CheckTargetLoss)
      .Excludes("--target-accuracy");
  line.Add(
          "--metric", flags.metric,
          "For a script that does not call psring.log: a regular expression "
          "with the accuracy (or its percentage) in parentheses, in the lines "
          "that its rank 0 prints. Numbers are percent where one is above 1 or "
          "has a % behind it, else fractions")
      .Excludes("--target-loss");
  line.Add("--metric-loss", flags.metric_loss,
           "The same for a loss, or another number of which lower is better, "
           "such as a perplexity")
      .Excludes("--metric")
      .Excludes("--target-accuracy");
  line.Add(kOutFlag, flags.out,
           "Folder that keeps the study and its report; without it the "
           "report is written here and no run is kept");
  AddPageFlags(line, flags.page, flags.page_token_file);
  line.Add("--insecure", flags.insecure,
           "No key: train with messages that are neither encrypted nor proven");
  AddBinaryFlags(line, flags.binaries);
  line.Footer(
      absl::StrCat("Ways, and whom a step waits for:\n", WaysHelp(), kExample));
}

bool IsScript(const Args& passed_on) {
  return !passed_on.empty() && !absl::StartsWith(passed_on[0], "-");
}

}  // namespace psring
