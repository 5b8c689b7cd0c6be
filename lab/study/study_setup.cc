#include "lab/study/study_setup.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lab/page/report_parts.h"

namespace psring {
namespace {

using nlohmann::json;

constexpr char kSchema[] = "psring-study-1";

// What the runs do not depend on.
constexpr const char* kOfTheReport[] = {"--target-accuracy", "--target-loss"};

std::string Text(const json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) return "(nothing)";
  return found->is_string() ? found->get<std::string>() : DumpJson(*found, -1);
}

// What both say under any key of the runs', where they differ.
void AddDifferences(const json& before, const json& now,
                    std::vector<std::string>* differences) {
  json keys = before;
  keys.update(now);
  for (const auto& [key, value] : keys.items()) {
    if (absl::c_linear_search(kOfTheReport, key)) continue;
    const std::string was = Text(before, key);
    const std::string is = Text(now, key);
    if (was == is) continue;
    differences->push_back(absl::StrCat(key, " was ", was, " and is ", is));
  }
}

}  // namespace

const std::string& StudySetup::Flag(const std::string& name) const {
  for (const auto& [flag, value] : flags) {
    if (flag == name) return value;
  }
  std::abort();
}

json SetupJson(const StudySetup& setup) {
  json flags = json::object();
  for (const auto& [flag, value] : setup.flags) flags[flag] = value;
  return {
      {"command", setup.command},
      {"flags", std::move(flags)},
      {"threads_per_worker", setup.threads_per_worker},
      {"created", setup.created},
      {"commit", setup.commit},
      {"libtorch", setup.libtorch},
      {"zeromq", setup.zeromq},
  };
}

json ManifestJson(const StudySetup& setup) {
  json flags = json::object();
  for (const auto& [flag, value] : setup.flags) flags[flag] = value;
  json manifest = {
      {"schema", kSchema},
      {"command", setup.command},
      {"created", setup.created},
      {"machine", MachineJson(setup.machine)},
      {"flags", std::move(flags)},
      {"made_with",
       {{"the commit", setup.commit},
        {"libtorch", setup.libtorch},
        {"ZeroMQ", setup.zeromq},
        {"the processor", setup.machine.cpu},
        {"the number of cores", absl::StrCat(setup.machine.cores)}}},
  };
  for (const auto& [what, value] : setup.inputs) {
    manifest["made_with"][what] = value;
  }
  // As a file gives it back: bytes that are not text are replaced.
  return json::parse(DumpJson(manifest, -1));
}

absl::Status CheckManifest(const json& manifest, const StudySetup& setup) {
  if (!manifest.is_object() || Text(manifest, "schema") != kSchema ||
      !manifest.value("flags", json()).is_object() ||
      !manifest.value("made_with", json()).is_object()) {
    return absl::DataLossError("it is not a study of this psring");
  }
  const json now = ManifestJson(setup);
  std::vector<std::string> differences;
  for (const char* part : {"flags", "made_with"}) {
    AddDifferences(manifest.at(part), now.at(part), &differences);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(differences, "; "));
}

}  // namespace psring
