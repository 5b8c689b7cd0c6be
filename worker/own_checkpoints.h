// Which of the checkpoints in a directory are this run's.
#ifndef PSRING_WORKER_OWN_CHECKPOINTS_H_
#define PSRING_WORKER_OWN_CHECKPOINTS_H_

#include <cstdint>
#include <set>
#include <string>

namespace psring {

// Those that it has found when it began, to continue from them, and those that
// it has written since. It knows them by their manifests, which hold checksums
// of all else: they may have been moved, or copied to another disk. One
// thread's own.
class OwnCheckpoints {
 public:
  void Add(const std::string& checkpoint);
  void AddAllIn(const std::string& directory);

  // Whether another run has written it. False where it has no manifest that can
  // be read: then it is nobody's.
  bool IsOthers(const std::string& checkpoint) const;

 private:
  std::set<uint64_t> digests_;  // of manifests
};

}  // namespace psring

#endif  // PSRING_WORKER_OWN_CHECKPOINTS_H_
