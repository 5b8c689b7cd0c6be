#include "common/cluster/host_of.h"

namespace psring {
namespace {

// HostOf of both is the same; nothing is copied for it.
bool AreTogether(const proto::Process& a, const proto::Process& b) {
  return a.boot() == b.boot() && a.host() == b.host();
}

}  // namespace

HostId HostOf(const proto::Process& process) {
  return {process.host(), process.boot()};
}

LocalPlace PlaceOnHost(const proto::Welcome& job, int rank) {
  LocalPlace place = {0, 0};
  for (int r = 0; r < job.workers_size(); ++r) {
    if (!AreTogether(job.workers(r), job.workers(rank))) continue;
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
