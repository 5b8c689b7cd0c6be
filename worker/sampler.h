// Which samples a rank trains on and scores: pure arithmetic, no libtorch.
#ifndef PSRING_WORKER_SAMPLER_H_
#define PSRING_WORKER_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace psring {

struct SamplerOptions {
  int64_t dataset_size = 0;  // of all ranks together
  int num_replicas = 1;      // at least 1
  int rank = 0;              // 0 .. num_replicas - 1
  uint64_t seed = 0;         // the same for all ranks
  bool shuffle = true;       // anew in each epoch; else 0, 1, 2, ...
  // Whether the ranks get equally many by leaving out the tail, instead of by
  // repeating samples from the front of the epoch's order.
  bool drop_last = false;
  // Samples of the epoch's order that are consumed before: at most
  // dataset_size. Rank r takes those at consumed + r + num_replicas * i.
  int64_t consumed = 0;
};

// The samples of one rank in one epoch, in order: to the bit those of
// torch.utils.data.DistributedSampler after set_epoch(epoch), for fewer than
// 2^32 / 20 samples, of every version of PyTorch. The permutation is not
// torch::randperm's, so that it depends on no installed version: see
// Permutation in the source. Options outside the ranges above are a bug.
std::vector<int64_t> Indices(const SamplerOptions& options, int64_t epoch);

// What a rank scores: rank, rank + num_replicas, ... below dataset_size. No
// padding, so over all ranks each sample is scored once; a rank may get none.
std::vector<int64_t> EvaluationIndices(int64_t dataset_size, int num_replicas,
                                       int rank);

}  // namespace psring

#endif  // PSRING_WORKER_SAMPLER_H_
