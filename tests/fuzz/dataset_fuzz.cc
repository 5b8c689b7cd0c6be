// worker/data/: files of data sets, plain and compressed.
#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/cifar10_dataset.h"
#include "worker/data/dataset.h"
#include "worker/data/gzip_file.h"
#include "worker/data/idx_dataset.h"

namespace psring::fuzz {
namespace {

constexpr int64_t kMaxUnpacked = 1 << 20;

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  Require(deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) ==
              Z_OK,
          "zlib starts");
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  Require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "and ends");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void CheckDataset(const Dataset& data) {
  Require(data.size() > 0, "a data set holds something");
  Require(static_cast<int64_t>(data.pixels.size()) ==
              data.size() * data.pixels_per_image(),
          "every label has its image");
  Require(std::all_of(data.labels.begin(), data.labels.end(),
                      [&](int64_t label) {
                        return label >= 0 && label < data.shape.num_classes;
                      }),
          "labels are classes");
}

void Check(const absl::StatusOr<DatasetPair>& data) {
  if (!data.ok()) return RequireReason(data.status());
  CheckDataset(data->train);
  CheckDataset(data->test);
}

void LoadAsIdx(Bytes& input) {
  const bool packed = input.Flag();
  const std::string images = input.Text();
  const std::string labels = input.Rest();
  for (const char* part : {"train", "t10k"}) {
    WriteScratch(absl::StrCat(part, "-images-idx3-ubyte"), images);
    WriteScratch(absl::StrCat(part, "-labels-idx1-ubyte"),
                 packed ? Gzip(labels) : labels);
  }
  Check(LoadIdx(ScratchFolder()));
}

void LoadAsCifar10(Bytes& input) {
  // Zeros behind the input: few inputs are as long as a record.
  std::string bytes = input.Text();
  bytes.resize(bytes.size() + static_cast<size_t>(input.Number(2)) % 7000);
  for (int i = 1; i <= 5; ++i) {
    WriteScratch(absl::StrCat("data_batch_", i, ".bin"), bytes);
  }
  WriteScratch("test_batch.bin", bytes);
  Check(LoadCifar10(ScratchFolder()));
}

void Unpack(const std::string& bytes) {
  const auto read = ReadPlainOrGzip(WriteScratch("file", bytes), kMaxUnpacked);
  if (!read.ok()) return RequireReason(read.status());
  Require(read->bytes.size() <= static_cast<size_t>(kMaxUnpacked),
          "no more is unpacked than is allowed");
}

void PackAndUnpack(const std::string& bytes) {
  const auto read = ReadPlainOrGzip(WriteScratch("file", Gzip(bytes)));
  Require(read.ok() && read->bytes == bytes, "what is packed can be unpacked");
}

std::string Idx(absl::string_view head, const std::string& payload) {
  return absl::StrCat(head, payload);
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string images =
      Idx({"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03", 16}, "abcdefABCDEF");
  const std::string labels = Idx({"\0\0\x08\x01\0\0\0\x02", 8}, "\x03\x09");
  return {
      Input().Byte(0).Byte(0).Text(images).Rest(labels).bytes(),
      Input().Byte(0).Byte(1).Text(images).Rest(labels).bytes(),
      Input().Byte(0).Byte(0).Text(Gzip(images)).Rest(Gzip(labels)).bytes(),
      Input().Byte(1).Text("\x07").Number(3072, 2).bytes(),
      Input().Byte(1).Text(Gzip(std::string(3073, '\1'))).bytes(),
      Input().Byte(2).Rest(Gzip("some text, some text")).bytes(),
      Input().Byte(2).Rest(Gzip(std::string(kMaxUnpacked + 1, 'x'))).bytes(),
      Input().Byte(3).Rest("some text").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  switch (input.Below(4)) {
    case 0:
      psring::fuzz::LoadAsIdx(input);
      break;
    case 1:
      psring::fuzz::LoadAsCifar10(input);
      break;
    case 2:
      psring::fuzz::Unpack(input.Rest());
      break;
    default:
      psring::fuzz::PackAndUnpack(input.Rest());
  }
  return 0;
}
