#include "tests/worker/data/data_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/testing/test_directory.h"

namespace psring::testing {
namespace {

std::string Counting(int first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(first + i));
  return bytes;
}

}  // namespace

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzipFormat = 16 + MAX_WBITS;
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipFormat, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string Idx(uint32_t magic, const std::vector<uint32_t>& sizes,
                const std::string& payload) {
  std::string bytes;
  const auto append = [&bytes](uint32_t value) {
    for (int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<char>(value >> shift));
    }
  };
  append(magic);
  for (uint32_t size : sizes) append(size);
  return bytes + payload;
}

void WriteTinyMnist(const std::string& folder) {
  WriteFile(folder + "/train-images-idx3-ubyte",
            Idx(0x803, {3, 2, 3},
                Counting(0, 6) + Counting(10, 6) + Counting(20, 6)));
  WriteFile(folder + "/train-labels-idx1-ubyte",
            Idx(0x801, {3}, std::string("\x09\x00\x05", 3)));
  WriteFile(folder + "/t10k-images-idx3-ubyte",
            Idx(0x803, {2, 2, 3}, Counting(100, 6) + Counting(110, 6)));
  WriteFile(folder + "/t10k-labels-idx1-ubyte", Idx(0x801, {2}, "\x01\x02"));
}

std::string CifarRecord(int label, int red, int green, int blue) {
  std::string record(1, static_cast<char>(label));
  for (int level : {red, green, blue}) {
    record += std::string(32 * 32, static_cast<char>(level));
  }
  return record;
}

void WriteTinyCifar10(const std::string& folder) {
  for (int i = 1; i <= 5; ++i) {
    WriteFile(folder + "/data_batch_" + std::to_string(i) + ".bin",
              CifarRecord(i, 10 + i, 20 + i, 30 + i));
  }
  WriteFile(folder + "/test_batch.bin",
            CifarRecord(6, 1, 2, 3) + CifarRecord(7, 4, 5, 6));
}

}  // namespace psring::testing
