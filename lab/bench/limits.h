// What results are held against, and what bandwidths mean: pure arithmetic.
//
// M is the buffer of each of n ranks, in bytes; S the number of servers.
#ifndef PSRING_LAB_BENCH_LIMITS_H_
#define PSRING_LAB_BENCH_LIMITS_H_

#include <cstdint>

namespace psring {

// On one host, where memory is the limit. `copy_seconds` is what n processes
// need to copy M bytes each at once, measured in the same run: n*M read and n*M
// written, without reading what is overwritten. It is a yardstick that says
// what main memory gives: a sum in place, whose outputs lie where its inputs
// were read, can be somewhat faster where caches are large.

// One such measurement, from the time until the last process was done and the
// CPU time of all. To wait for a core, where processes outnumber the cores or
// somebody else uses them, is no limit of memory: the CPU time, shared by the
// cores that they can use, is left where it is less.
double CopySeconds(double seconds, double cpu_seconds, int ranks, int cores);

// An allreduce must read every rank's input once and write every rank's output
// once, which is just that.
double AllReduceMemoryLimit(double copy_seconds);

// A push, update and pull must read n gradients, and read the parameters and
// write them; then write them into each worker: (n+1)*M each way. `slots`, what
// the optimizer keeps beside the parameters, is read and written too.
double PushPullMemoryLimit(double copy_seconds, int ranks, int slots);

// Where servers are: each on the host of one worker (S = n), or on hosts that
// have no worker.
enum class Placement { kColocated, kSeparate };

// How often M goes through the busiest link in each direction, at the least.
//
// allreduce: 2(n-1)/n (Patarasuk & Yuan, 2009).
double AllReduceLinkLoad(int ranks);
// Servers of their own: a worker sends M and gets M, a server gets n*M/S and
// sends as much, both at once where pieces are pipelined: max(1, n/S).
// Colocated: a worker's host sends the S-1 shards that are elsewhere and its
// server answers the n-1 workers that are: 2(n-1)/n.
double PushPullLinkLoad(int ranks, int servers, Placement placement);

// Seconds that M bytes so often take on a link of so many bits a second.
double LinkLimit(double load, int64_t size_bytes, double bits_per_s);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_LIMITS_H_
