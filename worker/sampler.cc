#include "worker/sampler.h"

#include <cassert>
#include <numeric>
#include <random>
#include <utility>

namespace psring {
namespace {

// The permutation that torch.randperm(n) gives after manual_seed(seed): a
// Fisher-Yates shuffle from the front. Each position takes one of those still
// unplaced by one 32-bit output of the Mersenne Twister, modulo their number
// (slightly biased, as there). The twister takes the seed's low 32 bits.
std::vector<int64_t> Permutation(int64_t n, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t chosen = i + static_cast<int64_t>(random() % (n - i));
    std::swap(order[i], order[chosen]);
  }
  return order;
}

// Every rank gets as many as the others.
int64_t SamplesPerRank(const SamplerOptions& options) {
  const int64_t left = options.dataset_size - options.consumed;
  const int64_t whole = left / options.num_replicas;
  const bool uneven = left % options.num_replicas != 0;
  return uneven && !options.drop_last ? whole + 1 : whole;
}

}  // namespace

std::vector<int64_t> Indices(const SamplerOptions& options, int64_t epoch) {
  assert(options.dataset_size >= 0 && options.num_replicas >= 1);
  assert(options.rank >= 0 && options.rank < options.num_replicas);
  assert(options.consumed >= 0 && options.consumed <= options.dataset_size);
  const int64_t n = options.dataset_size;
  std::vector<int64_t> order;
  if (options.shuffle) {
    order = Permutation(n, options.seed + static_cast<uint64_t>(epoch));
  }
  std::vector<int64_t> mine(SamplesPerRank(options));
  int64_t position = options.consumed + options.rank;
  for (int64_t& index : mine) {
    // Positions behind the end are the padding: the order, from its front.
    const int64_t wrapped = position % n;
    index = options.shuffle ? order[wrapped] : wrapped;
    position += options.num_replicas;
  }
  return mine;
}

std::vector<int64_t> EvaluationIndices(int64_t dataset_size, int num_replicas,
                                       int rank) {
  assert(num_replicas >= 1 && rank >= 0 && rank < num_replicas);
  std::vector<int64_t> mine;
  for (int64_t i = rank; i < dataset_size; i += num_replicas) mine.push_back(i);
  return mine;
}

}  // namespace psring
