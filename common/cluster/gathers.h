// What the processes of a job gather: each of a role brings a payload under a
// name, and all get those of all once the last one has come. Pure.
#ifndef PSRING_COMMON_CLUSTER_GATHERS_H_
#define PSRING_COMMON_CLUSTER_GATHERS_H_

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"

namespace psring {

class Gathers {
 public:
  struct Answer {
    proto::Gathered gathered;
    std::vector<int> ranks;  // of the role, to whom it goes; ascending
  };

  // What `process` brings or, with a repeat, asks. `promised`: how many
  // processes of its role the job has. Nothing: others have yet to come.
  // ABORTED, which names the process: it breaks the rules, so the job has to
  // end.
  absl::StatusOr<std::optional<Answer>> Add(const proto::Process& process,
                                            int promised,
                                            const proto::Gather& gather);

  // Of a gather that `process` waits in.
  struct Missing {
    std::string name;
    int rank;  // the first of its role that has not come
  };
  std::optional<Missing> FirstMissing(const proto::Process& process,
                                      int promised) const;

 private:
  struct Key {
    int role;
    std::string name;
    std::vector<int> among;  // ranks; empty: all of the role
    auto operator<=>(const Key&) const = default;
  };
  using Contributions = std::map<int, std::string>;  // by rank

  // Whether that would leave it within bounds.
  bool IsWithinBounds(const proto::Process& process,
                      const proto::Gather& gather) const;

  std::map<Key, Contributions> open_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_GATHERS_H_
