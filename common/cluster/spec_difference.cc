#include "common/cluster/spec_difference.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using google::protobuf::util::MessageDifferencer;

std::string ValueOf(const Message& message, const FieldDescriptor* field,
                    int index) {
  if (field->is_repeated() &&
      (index < 0 ||
       index >= message.GetReflection()->FieldSize(message, field))) {
    return "none";
  }
  std::string text;
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintFieldValueToString(message, field,
                                  field->is_repeated() ? index : -1, &text);
  // JobSpec's empty one.
  const bool full = field->name() == "precision" && text == "\"\"";
  return full ? "\"fp32\"" : text;
}

// Remembers the first difference only, one of the tensors only where there is
// no other: they follow from the model, which the user has named.
class FirstDifference : public MessageDifferencer::Reporter {
 public:
  using Path = std::vector<MessageDifferencer::SpecificField>;

  FirstDifference(const std::string& whose_here, const std::string& whose_job)
      : whose_here_(whose_here), whose_job_(whose_job) {}

  const std::string& text() const { return text_; }

  void ReportAdded(const Message& here, const Message& job,
                   const Path& path) override {
    Report(here, job, path);
  }
  void ReportDeleted(const Message& here, const Message& job,
                     const Path& path) override {
    Report(here, job, path);
  }
  void ReportModified(const Message& here, const Message& job,
                      const Path& path) override {
    Report(here, job, path);
  }

 private:
  // `here` and `job` are the messages that hold the path's last field.
  void Report(const Message& here, const Message& job, const Path& path) {
    const FieldDescriptor* const first = path.front().field;
    const bool of_tensors = first != nullptr && first->name() == "tensors";
    if (!text_.empty() && (of_tensors || !of_tensors_)) return;
    of_tensors_ = of_tensors;
    std::string name;
    for (const auto& part : path) {
      if (part.field == nullptr) {  // of another build
        text_ = absl::StrCat("field number ", part.unknown_field_number,
                             ", which is not known here. Run the same build "
                             "of psring everywhere");
        return;
      }
      absl::StrAppend(&name, name.empty() ? "" : ".", part.field->name());
      if (part.field->is_repeated()) {
        absl::StrAppend(&name, "[", std::max(part.index, part.new_index), "]");
      }
    }
    const auto& last = path.back();
    text_ = absl::StrCat(
        name, ": ", ValueOf(here, last.field, last.index), " ", whose_here_,
        ", ", ValueOf(job, last.field, last.new_index), " ", whose_job_);
  }

  const std::string whose_here_, whose_job_;
  std::string text_;
  bool of_tensors_ = false;
};

}  // namespace

std::optional<std::string> SpecDifference(const proto::JobSpec& here,
                                          const proto::JobSpec& job,
                                          const std::string& whose_here,
                                          const std::string& whose_job) {
  FirstDifference reporter(whose_here, whose_job);
  MessageDifferencer differencer;
  differencer.ReportDifferencesTo(&reporter);
  if (differencer.Compare(here, job)) return std::nullopt;
  return reporter.text();
}

}  // namespace psring
