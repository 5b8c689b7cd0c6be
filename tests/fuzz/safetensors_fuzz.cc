// common/state/safetensors.h, and a checkpoint's files of tensors.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/state/safetensors.h"
#include "common/state/state_files.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

Layout SomeLayout() {
  std::vector<proto::TensorShape> tensors(2);
  tensors[0].set_name("w");
  tensors[0].add_shape(2);
  tensors[0].add_shape(3);
  tensors[1].set_name("b");
  auto layout = Layout::Create(tensors, 1 << 20);
  Require(layout.ok(), "the layout is right");
  return *std::move(layout);
}

void RequireTiling(const std::vector<TensorEntry>& entries, int64_t bytes) {
  int64_t end = 0;
  for (const TensorEntry& entry : entries) {
    Require(entry.begin == end && entry.end >= entry.begin,
            "tensors follow each other");
    const auto size = TensorBytes(entry.dtype, entry.shape);
    Require(size.ok() && *size == entry.end - entry.begin,
            "a tensor is as large as its shape says");
    end = entry.end;
  }
  Require(end == bytes, "tensors are all of the data");
}

void ParseHeader(const std::string& header, int64_t data_bytes) {
  auto entries = ParseSafetensorsHeader(header, data_bytes);
  if (!entries.ok()) return RequireReason(entries.status());
  RequireTiling(*entries, data_bytes);
  const auto written = LayOutSafetensors(absl::MakeSpan(*entries));
  Require(written.ok(), "what was read can be written");
  const auto length = ParseSafetensorsLength(
      written->data(), static_cast<int64_t>(written->size()) + data_bytes);
  Require(length.ok() && kSafetensorsLengthBytes + *length ==
                             static_cast<int64_t>(written->size()),
          "the header has the length that it begins with");
  const auto again = ParseSafetensorsHeader(
      written->substr(kSafetensorsLengthBytes), data_bytes);
  Require(again.ok() && again->size() == entries->size(), "and read again");
  for (size_t i = 0; i < entries->size(); ++i) {
    Require((*again)[i].name == (*entries)[i].name &&
                (*again)[i].shape == (*entries)[i].shape,
            "to the same");
  }
}

const std::vector<std::string> kSlots = {"momentum_buffer"};

void ReadFiles(const std::string& model, const std::string& optimizer) {
  static const Layout layout = SomeLayout();
  WriteScratch(kModelFile, model);
  WriteScratch(kOptimizerFile, optimizer);
  const auto n = static_cast<size_t>(layout.num_elements());
  std::vector<float> parameters(n), slot(n);
  float* const slots[] = {slot.data()};
  std::vector<ExtraTensor> extras;
  const absl::Status status = ReadStateFiles(ScratchFolder(), layout, kSlots,
                                             parameters.data(), slots, &extras);
  if (!status.ok()) return RequireReason(status);
  for (const ExtraTensor& extra : extras) {
    Require(extra.bytes.size() <= model.size(), "a buffer comes from its file");
  }
}

struct StateFiles {
  std::string model;
  std::string optimizer;
};

StateFiles GoodFiles() {
  ExtraTensor extra;
  extra.name = "batches";
  extra.dtype = "I64";
  extra.bytes = "12345678";
  Require(
      LayOutStateFiles(ScratchFolder(), SomeLayout(), kSlots, {&extra, 1}).ok(),
      "files can be laid out");
  return {ReadScratch(kModelFile), ReadScratch(kOptimizerFile)};
}

std::string HeaderOf(const std::string& file) {
  const auto length =
      ParseSafetensorsLength(file.data(), static_cast<int64_t>(file.size()));
  Require(length.ok(), "psring's own files begin with a length");
  return file.substr(kSafetensorsLengthBytes, static_cast<size_t>(*length));
}

// One of the two has another header, of whatever length, with its length in
// front: as whoever makes one up would write it.
void ReadWithHeader(bool of_model, size_t data_bytes,
                    const std::string& header) {
  static const StateFiles good = GoodFiles();
  const std::string file = Input()
                               .Number(header.size(), kSafetensorsLengthBytes)
                               .Rest(header)
                               .Rest(std::string(data_bytes, '\1'))
                               .bytes();
  if (of_model) return ReadFiles(file, good.optimizer);
  ReadFiles(good.model, file);
}

// What another process leaves to this one to write.
void WriteEdgesOf(const proto::SavedState& saved) {
  static const Layout layout = SomeLayout();
  Require(LayOutStateFiles(ScratchFolder(), layout, kSlots, {}).ok(),
          "files can be laid out");
  const size_t model = ReadScratch(kModelFile).size();
  const size_t optimizer = ReadScratch(kOptimizerFile).size();
  const absl::Status status = WriteEdges(ScratchFolder(), saved);
  if (!status.ok()) RequireReason(status);
  Require(ReadScratch(kModelFile).size() == model &&
              ReadScratch(kOptimizerFile).size() == optimizer,
          "nobody writes outside of the files");
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto [model, optimizer] = GoodFiles();
  const std::string header = HeaderOf(model);
  proto::SavedState saved;
  proto::SavedState::Edge& edge = *saved.add_edges();
  edge.set_file(kModelFile);
  edge.set_begin(200);
  edge.set_data("1234");
  const auto data_bytes = [](const std::string& file) {
    return file.size() - HeaderOf(file).size() - kSafetensorsLengthBytes;
  };
  return {
      Input()
          .Byte(0)
          .Integer(static_cast<int64_t>(data_bytes(model)))
          .Rest(header)
          .bytes(),
      Input().Byte(1).Text(model).Rest(optimizer).bytes(),
      Input().Byte(2).Rest(saved.SerializeAsString()).bytes(),
      Input().Byte(4).Byte(1).Number(data_bytes(model), 2).Rest(header).bytes(),
      Input()
          .Byte(4)
          .Byte(0)
          .Number(data_bytes(optimizer), 2)
          .Rest(HeaderOf(optimizer))
          .bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(6)) {
    case 0:
    case 3: {
      const int64_t data_bytes = input.Integer();
      fuzz::ParseHeader(input.Rest(), data_bytes);
      break;
    }
    case 1: {
      const std::string model = input.Text();
      fuzz::ReadFiles(model, input.Rest());
      break;
    }
    case 4: {
      const bool of_model = input.Flag();
      const auto data_bytes = static_cast<size_t>(input.Number(2));
      fuzz::ReadWithHeader(of_model, data_bytes, input.Rest());
      break;
    }
    default: {
      proto::SavedState saved;
      if (saved.ParseFromString(input.Rest())) fuzz::WriteEdgesOf(saved);
    }
  }
  return 0;
}
