#include "common/state/state_files.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/state/file.h"
#include "common/state/safetensors.h"
#include "common/state/safetensors_file.h"

namespace psring {
namespace {

// What is read into memory because the file says so, and not the model.
constexpr int64_t kMaxExtraBytes = int64_t{1} << 30;

std::string PathOf(const std::string& directory, const char* name) {
  return absl::StrCat(directory, "/", name);
}

// The optimizer's tensors of one slot are named with this before the
// parameter's name.
std::string SlotPrefix(const std::string& slot) {
  return absl::StrCat(slot, ".");
}

std::vector<int64_t> ShapeOf(const proto::TensorShape& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

void AppendEntries(const Layout& layout, const std::string& prefix,
                   std::vector<TensorEntry>& entries) {
  for (const proto::TensorShape& tensor : layout.tensors()) {
    TensorEntry& entry = entries.emplace_back();
    entry.name = absl::StrCat(prefix, tensor.name());
    entry.dtype = "F32";
    entry.shape = ShapeOf(tensor);
  }
}

absl::Status AppendExtra(const ExtraTensor& extra,
                         std::vector<TensorEntry>& entries) {
  const int64_t size = static_cast<int64_t>(extra.bytes.size());
  absl::StatusOr<int64_t> wanted = TensorBytes(extra.dtype, extra.shape);
  if (!wanted.ok() || *wanted != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", extra.name, " of ", size, " bytes cannot be ",
                     extra.dtype, " [", absl::StrJoin(extra.shape, ","), "]"));
  }
  TensorEntry& entry = entries.emplace_back();
  entry.name = extra.name;
  entry.dtype = extra.dtype;
  entry.shape = extra.shape;
  return absl::OkStatus();
}

void Report(const char* name, const SafetensorsFile& file,
            proto::SavedState& saved) {
  for (const proto::SavedState::Run& written : file.written()) {
    proto::SavedState::Run& run = *saved.add_runs();
    run = written;
    run.set_file(name);
  }
}

absl::Status LayOutModelFile(const std::string& path, const Layout& layout,
                             absl::Span<const ExtraTensor> extras,
                             proto::SavedState& saved) {
  std::vector<TensorEntry> entries;
  AppendEntries(layout, "", entries);
  absl::Status status;
  for (const ExtraTensor& extra : extras) {
    status = AppendExtra(extra, entries);
    if (!status.ok()) return status;
  }
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Create(path, std::move(entries));
  if (!file.ok()) return file.status();
  for (const ExtraTensor& extra : extras) {
    status = file->Write(*file->Find(extra.name), 0, extra.bytes.data(),
                         extra.bytes.size());
    if (!status.ok()) return status;
  }
  Report(kModelFile, *file, saved);
  return file->Sync();
}

absl::Status LayOutOptimizerFile(const std::string& path, const Layout& layout,
                                 absl::Span<const std::string> slot_names,
                                 proto::SavedState& saved) {
  std::vector<TensorEntry> entries;
  for (const std::string& slot : slot_names) {
    AppendEntries(layout, SlotPrefix(slot), entries);
  }
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Create(path, std::move(entries));
  if (!file.ok()) return file.status();
  Report(kOptimizerFile, *file, saved);
  return file->Sync();
}

absl::StatusOr<SafetensorsFile> OpenLaidOut(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path, O_RDWR);
  if (!absl::IsNotFound(file.status())) return file;
  return absl::FailedPreconditionError(
      absl::StrCat("this host does not see ", path,
                   "; choose a checkpoint directory that all hosts share"));
}

// The file's tensor under `name`, which the model has too.
absl::StatusOr<const TensorEntry*> FindParameter(
    const SafetensorsFile& file, const std::string& name,
    const proto::TensorShape& tensor) {
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), " has no tensor ", name,
                     "; it is of another model or ", "optimizer"));
  }
  if (entry->dtype == "F32" && entry->shape == ShapeOf(tensor)) return entry;
  return absl::FailedPreconditionError(absl::StrCat(
      file.path(), ": tensor ", name, " is ", entry->dtype, " [",
      absl::StrJoin(entry->shape, ","), "], but the model's is F32 [",
      absl::StrJoin(tensor.shape(), ","), "]"));
}

void AddEdge(const char* name, int64_t position, const char* data, int64_t size,
             proto::SavedState& saved) {
  const int last = saved.edges_size() - 1;
  if (last < 0 || saved.edges(last).file() != name ||
      saved.edges(last).begin() +
              static_cast<int64_t>(saved.edges(last).data().size()) !=
          position) {
    proto::SavedState::Edge& edge = *saved.add_edges();
    edge.set_file(name);
    edge.set_begin(position);
  }
  saved.mutable_edges(saved.edges_size() - 1)
      ->mutable_data()
      ->append(data, static_cast<size_t>(size));
}

// Writes what lies in `blocks`, a run of the file's bytes; the rest is edges.
absl::Status WriteOwnBlocks(const char* name, Range blocks, int64_t position,
                            const char* data, int64_t size,
                            SafetensorsFile& file, proto::SavedState& saved) {
  while (size > 0) {
    const bool before = position < blocks.begin;
    const bool own = !before && position < blocks.end;
    const int64_t end = before ? blocks.begin
                        : own  ? blocks.end
                               : position + size;
    const int64_t part = std::min(size, end - position);
    if (own) {
      if (absl::Status s = file.WriteAt(position, data, part); !s.ok())
        return s;
    } else {
      AddEdge(name, position, data, part, saved);
    }
    position += part;
    data += part;
    size -= part;
  }
  return absl::OkStatus();
}

// The whole blocks within the bytes [begin, end) of a file.
Range BlocksWithin(int64_t begin, int64_t end) {
  const int64_t first = (begin + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  return {first, std::max(first, end / kBlockBytes * kBlockBytes)};
}

// Writes the parts of the tensors that lie in `range`, which `data` holds. They
// follow each other in the file.
absl::Status WriteRange(const Layout& layout, const std::string& prefix,
                        Range range, const float* data, const char* name,
                        SafetensorsFile& file, proto::SavedState& saved) {
  struct Part {
    int64_t position;
    const float* data;
    int64_t bytes;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const Range whole = layout.tensor(i);
    const Range part = Intersect(whole, range);
    if (part.empty()) continue;
    const proto::TensorShape& tensor = layout.tensors()[i];
    absl::StatusOr<const TensorEntry*> entry =
        FindParameter(file, absl::StrCat(prefix, tensor.name()), tensor);
    if (!entry.ok()) return entry.status();
    const auto offset =
        static_cast<int64_t>((part.begin - whole.begin) * sizeof(float));
    parts.push_back({file.PositionOf(**entry, offset),
                     data + (part.begin - range.begin),
                     static_cast<int64_t>(part.size() * sizeof(float))});
  }
  if (parts.empty()) return absl::OkStatus();
  const Range blocks = BlocksWithin(parts.front().position,
                                    parts.back().position + parts.back().bytes);
  for (const Part& part : parts) {
    absl::Status status = WriteOwnBlocks(
        name, blocks, part.position, reinterpret_cast<const char*>(part.data),
        part.bytes, file, saved);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckEdge(const proto::SavedState::Edge& edge,
                       int64_t file_bytes) {
  const auto size = static_cast<int64_t>(edge.data().size());
  if (edge.begin() >= 0 && edge.begin() <= file_bytes - size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a writer of ", edge.file(), " has left ", size,
                   " bytes at ", edge.begin(), ", outside of it"));
}

// Reads every tensor into `data`, which holds the flat model.
absl::Status ReadAll(const SafetensorsFile& file, const Layout& layout,
                     const std::string& prefix, float* data) {
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const proto::TensorShape& tensor = layout.tensors()[i];
    absl::StatusOr<const TensorEntry*> entry =
        FindParameter(file, absl::StrCat(prefix, tensor.name()), tensor);
    if (!entry.ok()) return entry.status();
    const Range range = layout.tensor(i);
    absl::Status status =
        file.Read(**entry, 0, data + range.begin, range.size() * sizeof(float));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadExtras(const SafetensorsFile& file, const Layout& layout,
                        std::vector<ExtraTensor>& extras) {
  std::unordered_set<std::string> parameters;
  for (const proto::TensorShape& tensor : layout.tensors()) {
    parameters.insert(tensor.name());
  }
  for (const TensorEntry& entry : file.entries()) {
    if (parameters.count(entry.name) > 0) continue;
    const int64_t size = entry.end - entry.begin;
    if (size > kMaxExtraBytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(file.path(), ": the model has no tensor ", entry.name,
                       ", and ", size, " bytes are too large for a buffer"));
    }
    ExtraTensor& extra = extras.emplace_back();
    extra.name = entry.name;
    extra.dtype = entry.dtype;
    extra.shape = entry.shape;
    extra.bytes.resize(size);
    absl::Status status = file.Read(entry, 0, extra.bytes.data(), size);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadModelFile(const std::string& path, const Layout& layout,
                           float* parameters,
                           std::vector<ExtraTensor>* extras) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path, O_RDONLY);
  if (!file.ok()) return file.status();
  absl::Status status = ReadAll(*file, layout, "", parameters);
  if (!status.ok()) return status;
  return ReadExtras(*file, layout, *extras);
}

absl::Status ReadOptimizerFile(const std::string& path, const Layout& layout,
                               absl::Span<const std::string> slot_names,
                               absl::Span<float* const> slots) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path, O_RDONLY);
  if (!file.ok()) return file.status();
  for (size_t i = 0; i < slot_names.size(); ++i) {
    absl::Status status =
        ReadAll(*file, layout, SlotPrefix(slot_names[i]), slots[i]);
    if (!status.ok()) return status;
  }
  const size_t wanted = slot_names.size() * layout.tensors().size();
  if (file->entries().size() == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " holds ", file->entries().size(), " tensors and this optimizer ",
      wanted, "; resume with the optimizer that wrote it"));
}

}  // namespace

absl::StatusOr<proto::SavedState> LayOutStateFiles(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names,
    absl::Span<const ExtraTensor> extras) {
  proto::SavedState saved;
  absl::Status status =
      LayOutModelFile(PathOf(directory, kModelFile), layout, extras, saved);
  if (!status.ok()) return status;
  status = LayOutOptimizerFile(PathOf(directory, kOptimizerFile), layout,
                               slot_names, saved);
  if (!status.ok()) return status;
  return saved;
}

absl::StatusOr<proto::SavedState> WriteStateRange(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names, Range range,
    const float* parameters, absl::Span<const float* const> slots) {
  return WriteStateRanges(directory, layout, slot_names,
                          {{range, parameters, {slots.begin(), slots.end()}}});
}

absl::StatusOr<proto::SavedState> WriteStateRanges(
    const std::string& directory, const Layout& layout,
    absl::Span<const std::string> slot_names,
    absl::Span<const StateRange> ranges) {
  absl::StatusOr<SafetensorsFile> model =
      OpenLaidOut(PathOf(directory, kModelFile));
  if (!model.ok()) return model.status();
  absl::StatusOr<SafetensorsFile> optimizer =
      OpenLaidOut(PathOf(directory, kOptimizerFile));
  if (!optimizer.ok()) return optimizer.status();
  proto::SavedState saved;
  absl::Status status;
  for (const StateRange& part : ranges) {
    status.Update(WriteRange(layout, "", part.range, part.parameters,
                             kModelFile, *model, saved));
    for (size_t i = 0; i < slot_names.size() && status.ok(); ++i) {
      status = WriteRange(layout, SlotPrefix(slot_names[i]), part.range,
                          part.slots[i], kOptimizerFile, *optimizer, saved);
    }
  }
  if (status.ok()) status = model->Sync();
  if (status.ok()) status = optimizer->Sync();
  if (!status.ok()) return status;
  Report(kModelFile, *model, saved);
  Report(kOptimizerFile, *optimizer, saved);
  for (const proto::SavedState::Edge& edge : saved.edges()) {
    proto::SavedState::Run& run = *saved.add_runs();
    run.set_file(edge.file());
    run.set_begin(edge.begin());
    run.set_size(static_cast<int64_t>(edge.data().size()));
    run.set_crc(static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(edge.data().data()),
                edge.data().size())));
  }
  return saved;
}

absl::Status WriteEdges(const std::string& directory,
                        const proto::SavedState& saved) {
  for (const char* name : {kModelFile, kOptimizerFile}) {
    auto file = File::Open(PathOf(directory, name), O_RDWR);
    if (!file.ok()) return file.status();
    const auto size = file->Size();
    if (!size.ok()) return size.status();
    for (const proto::SavedState::Edge& edge : saved.edges()) {
      if (edge.file() != name) continue;
      absl::Status status = CheckEdge(edge, *size);
      if (status.ok()) {
        status = file->WriteAt(edge.begin(), edge.data().data(),
                               static_cast<int64_t>(edge.data().size()));
      }
      if (!status.ok()) return status;
    }
    if (absl::Status s = file->Sync(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ReadStateFiles(const std::string& directory, const Layout& layout,
                            absl::Span<const std::string> slot_names,
                            float* parameters, absl::Span<float* const> slots,
                            std::vector<ExtraTensor>* extras) {
  absl::Status status =
      ReadModelFile(PathOf(directory, kModelFile), layout, parameters, extras);
  if (!status.ok()) return status;
  return ReadOptimizerFile(PathOf(directory, kOptimizerFile), layout,
                           slot_names, slots);
}

}  // namespace psring
