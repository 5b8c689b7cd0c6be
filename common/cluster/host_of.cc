#include "common/cluster/host_of.h"

namespace psring {

HostId HostOf(const proto::Process& process) {
  return {process.host(), process.boot()};
}

LocalPlace PlaceOnHost(const proto::Welcome& job, int rank) {
  LocalPlace place = {0, 0};
  for (int r = 0; r < job.workers_size(); ++r) {
    if (HostOf(job.workers(r)) != HostOf(job.workers(rank))) continue;
    if (r < rank) ++place.index;
    ++place.count;
  }
  return place;
}

bool OnOneHost(const proto::Welcome& job) {
  return job.workers_size() == 0 ||
         PlaceOnHost(job, 0).count == job.workers_size();
}

}  // namespace psring
