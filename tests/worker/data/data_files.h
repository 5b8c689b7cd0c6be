// Writes small data sets in the formats of the real ones.
#ifndef PSRING_TESTS_WORKER_DATA_DATA_FILES_H_
#define PSRING_TESTS_WORKER_DATA_DATA_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace psring::testing {

// `bytes` as gzip would write them.
std::string Gzip(const std::string& bytes);

// An IDX file: the magic number, a size for each dimension, the payload.
std::string Idx(uint32_t magic, const std::vector<uint32_t>& sizes,
                const std::string& payload);

// Three training and two test images of 2x3 pixels, plain. Pixel p of training
// image i is 10 * i + p, of test image i 100 + 10 * i + p. Labels 9, 0, 5;
// 1, 2.
void WriteTinyMnist(const std::string& folder);

// One record of CIFAR-10: all red, all green, all blue pixels of one value
// each.
std::string CifarRecord(int label, int red, int green, int blue);

// data_batch_1.bin .. data_batch_5.bin of one record, labels 1 .. 5 and red 11
// .. 15; test_batch.bin of two, labels 6 and 7.
void WriteTinyCifar10(const std::string& folder);

}  // namespace psring::testing

#endif  // PSRING_TESTS_WORKER_DATA_DATA_FILES_H_
