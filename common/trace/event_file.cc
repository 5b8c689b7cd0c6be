#include "common/trace/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"

namespace psring {
namespace {

using nlohmann::json;

constexpr int kDtString = 7;  // TensorFlow's DataType

std::array<uint32_t, 256> Crc32cTable() {
  std::array<uint32_t, 256> table;
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    }
    table[i] = crc;
  }
  return table;
}

// x86 and ARM are little-endian, as the format is.
template <typename T>
std::string BytesOf(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

// The counts of all workers' gradients that missed 0, 1, ... updates.
tensorboard::HistogramProto HistogramOf(const json& by_worker) {
  std::vector<double> counts;
  for (const json& worker : by_worker) {
    counts.resize(std::max(counts.size(), worker.size()));
    for (size_t i = 0; i < worker.size(); ++i) {
      counts[i] += worker[i].get<double>();
    }
  }
  tensorboard::HistogramProto histogram;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto staleness = static_cast<double>(i);
    histogram.add_bucket_limit(staleness + 0.5);
    histogram.add_bucket(counts[i]);
    if (counts[i] == 0) continue;
    if (histogram.num() == 0) histogram.set_min(staleness);
    histogram.set_max(staleness);
    histogram.set_num(histogram.num() + counts[i]);
    histogram.set_sum(histogram.sum() + counts[i] * staleness);
    histogram.set_sum_squares(histogram.sum_squares() +
                              counts[i] * staleness * staleness);
  }
  return histogram;
}

}  // namespace

uint32_t MaskedCrc32c(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = Crc32cTable();
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

EventFile::EventFile(const std::string& directory, const std::string& run) {
  if (directory.empty()) return;
  const auto now = WallNow();
  std::string folder = absl::StrCat(
      directory, "/", run, "-",
      absl::FormatTime("%Y%m%d-%H%M%E3S", now, absl::LocalTimeZone()));
  std::error_code error;
  // Another run of this moment, or of the hour that a clock repeats.
  if (std::filesystem::exists(folder, error)) {
    absl::StrAppend(&folder, "-", getpid());
  }
  path_ = absl::StrCat(folder, "/events.out.tfevents.",
                       absl::ToUnixSeconds(now), ".", getpid());
  std::filesystem::create_directories(folder, error);
  if (error) {
    Fail(error.message());
    return;
  }
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    Fail(strerror(errno));
    return;
  }
  tensorboard::Event event;
  event.set_file_version("brain.Event:2");
  Append(event.SerializeAsString());
}

void EventFile::WriteTable(const std::string& tag, const TextTableRows& rows) {
  std::string text = "| | |\n|---|---|\n";
  for (const auto& [name, value] : rows) {
    absl::StrAppend(&text, "| ", name, " | ",
                    absl::StrReplaceAll(value, {{"|", "\\|"}, {"\n", " "}}),
                    " |\n");
  }
  tensorboard::Event event;
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_tensor()->set_dtype(kDtString);
  value.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
  value.mutable_tensor()->add_string_val(text);
  WriteEvent(std::move(event));
}

void EventFile::WriteLine(const json& line) {
  const bool says_nothing = line.value("event", "") == "progress";
  if (!file_.is_open() || says_nothing) return;
  tensorboard::Event event;
  event.set_step(line.value("step", int64_t{0}));
  AddValues(line.value("event", "metrics"), line, event.mutable_summary());
  if (event.summary().value_size() > 0) WriteEvent(std::move(event));
}

void EventFile::AddValues(const std::string& prefix, const json& values,
                          tensorboard::Summary* summary) {
  for (const auto& [name, value] : values.items()) {
    const std::string tag = absl::StrCat(prefix, "/", name);
    const auto add_scalar = [&](const std::string& its_tag, float scalar) {
      summary->add_value()->set_tag(its_tag);
      summary->mutable_value()->rbegin()->set_simple_value(scalar);
    };
    if (name == "staleness_histogram" && value.is_object()) {
      summary->add_value()->set_tag(tag);
      *summary->mutable_value()->rbegin()->mutable_histo() = HistogramOf(value);
    } else if (value.is_object()) {
      AddValues(tag, value, summary);
    } else if (value.is_number() && name != "step" && name != "epoch") {
      add_scalar(tag, value.get<float>());
    } else if (name == "not_finite" && value.is_array()) {
      for (const json& figure : value) {
        if (!figure.is_string()) continue;
        add_scalar(absl::StrCat(prefix, "/", figure.get<std::string>()),
                   std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

void EventFile::WriteEvent(tensorboard::Event event) {
  if (!file_.is_open()) return;
  event.set_wall_time(absl::ToDoubleSeconds(WallNow() - absl::UnixEpoch()));
  Append(event.SerializeAsString());
}

void EventFile::Append(const std::string& record) {
  const std::string length = BytesOf<uint64_t>(record.size());
  errno = 0;
  file_ << length << BytesOf(MaskedCrc32c(length)) << record
        << BytesOf(MaskedCrc32c(record)) << std::flush;
  if (!file_) Fail(strerror(errno));
}

void EventFile::Fail(const std::string& why) {
  LogWarning(
      "--tensorboard: cannot write $0 ($1). Training continues; TensorBoard "
      "sees nothing more of it",
      path_, why);
  file_.close();
}

}  // namespace psring
