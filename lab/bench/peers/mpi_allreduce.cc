// An MPI's allreduce or, with PSRING_ONECCL, oneCCL's, whose ranks an MPI has
// started. Measured as lab/bench/allreduce_operation.cc measures psring's: new
// inputs before every batch of iterations, a common start, every element of the
// result compared. Writes OUT/rank-RANK.json.
//
// usage: mpi_allreduce SIZE_BYTES ITERATIONS WARMUP OUT BATCH
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef PSRING_ONECCL
#include <memory>

#include "oneapi/ccl.hpp"

static const int64_t kMostElements = INT64_MAX;
static std::unique_ptr<ccl::communicator> ccl_communicator;

// oneCCL calls MPI in threads of its own, which locks every call.
static void Begin(int* argc, char*** argv) {
  int threads;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &threads);
}

static void Prepare(int rank, int ranks) {
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> kvs;
  ccl::kvs::address_type address;
  if (rank == 0) {
    kvs = ccl::create_main_kvs();
    address = kvs->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0,
            MPI_COMM_WORLD);
  if (rank != 0) kvs = ccl::create_kvs(address);
  ccl_communicator = std::make_unique<ccl::communicator>(
      ccl::create_communicator(ranks, rank, kvs));
}

static void AllReduce(float* data, int64_t size) {
  ccl::allreduce(data, data, static_cast<size_t>(size), ccl::reduction::sum,
                 *ccl_communicator)
      .wait();
}

static void End() { ccl_communicator.reset(); }
#else
// MPI counts in int.
static const int64_t kMostElements = INT_MAX;

static void Begin(int* argc, char*** argv) { MPI_Init(argc, argv); }

static void Prepare(int, int) {}

static void AllReduce(float* data, int64_t size) {
  MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(size), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
}

static void End() {}
#endif

static double Read(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// As lab/bench/pattern.h.
static float Pattern(float factor, int64_t iteration, int64_t element) {
  const uint32_t hash =
      (uint32_t)element * 2654435761u + (uint32_t)iteration * 40503u;
  return factor * (float)((int)(hash >> 25) + 1);
}

// As RankJob::AwaitStart.
static double AwaitStart() {
  double start = Read(CLOCK_MONOTONIC);
  MPI_Allreduce(MPI_IN_PLACE, &start, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  start += 2e-3;
  const double asleep = start - 2e-4 - Read(CLOCK_MONOTONIC);
  if (asleep > 0) {
    const struct timespec time = {0, (long)(asleep * 1e9)};
    nanosleep(&time, NULL);
  }
  while (Read(CLOCK_MONOTONIC) < start) sched_yield();
  return start;
}

// What a rank does next takes a core from those that are still at it.
static void Rest(double seconds) {
  const struct timespec time = {(time_t)seconds,
                                (long)((seconds - floor(seconds)) * 1e9)};
  nanosleep(&time, NULL);
}

static void Fail(const char* what, int64_t number) {
  fprintf(stderr, "mpi_allreduce: %s %lld\n", what, (long long)number);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void WriteList(FILE* file, const char* name, const double* values,
                      int64_t size) {
  fprintf(file, ",\"%s\":[", name);
  for (int64_t i = 0; i < size; ++i) {
    fprintf(file, "%s%.9f", i == 0 ? "" : ",", values[i]);
  }
  fprintf(file, "]");
}

static void WriteTimes(const char* out, int rank, const double* seconds,
                       const double* cpu_seconds, int64_t iterations) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/rank-%d.json", out, rank);
  FILE* file = fopen(path, "w");
  if (file == NULL) {
    Fail("cannot write the times of rank", rank);
    return;
  }
  fprintf(file, "{\"rank\":%d", rank);
  WriteList(file, "seconds", seconds, iterations);
  WriteList(file, "cpu_seconds", cpu_seconds, iterations);
  fprintf(file, "}\n");
  if (fclose(file) != 0) Fail("cannot write the times of rank", rank);
}

int main(int argc, char** argv) {
  Begin(&argc, &argv);
  if (argc != 6) Fail("arguments: 5, not", argc - 1);
  const int64_t size = atoll(argv[1]) / (int64_t)sizeof(float);
  if (size > kMostElements) {
    Fail("MPI_Allreduce takes at most 2147483647 elements, not", size);
  }
  const int64_t iterations = atoll(argv[2]), warmup = atoll(argv[3]);
  const int64_t all = warmup + iterations, batch = atoll(argv[5]);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const float factor = (float)((int64_t)ranks * (ranks + 1) / 2);
  Prepare(rank, ranks);
  float* data =
      static_cast<float*>(aligned_alloc(64, (size_t)(size * 4 + 63) / 64 * 64));
  double* seconds =
      static_cast<double*>(malloc((size_t)iterations * sizeof(double)));
  double* cpu_seconds =
      static_cast<double*>(malloc((size_t)iterations * sizeof(double)));
  if (data == NULL || seconds == NULL || cpu_seconds == NULL) {
    Fail("no memory for bytes", size * 4);
  }
  int64_t runs = 0;
  for (int64_t i = 0; i < all; i += runs) {
    const int64_t left = (i < warmup ? warmup : all) - i;
    runs = batch < left ? batch : left;
    for (int64_t e = 0; e < size; ++e) {
      data[e] = Pattern((float)(rank + 1), i, e);
    }
    const double start = AwaitStart();
    double before = start;
    double cpu_before = Read(CLOCK_PROCESS_CPUTIME_ID);
    for (int64_t run = 0; run < runs; ++run) {
      AllReduce(data, size);
      const double now = Read(CLOCK_MONOTONIC);
      const double cpu_now = Read(CLOCK_PROCESS_CPUTIME_ID);
      if (i >= warmup) {
        seconds[i - warmup + run] = now - before;
        cpu_seconds[i - warmup + run] = cpu_now - cpu_before;
      }
      before = now;
      cpu_before = cpu_now;
    }
    Rest(before - start);
    // Nor does anybody verify before all are done.
    MPI_Barrier(MPI_COMM_WORLD);
    // Every run but the first has summed equal sums.
    const float expected = factor * powf((float)ranks, (float)(runs - 1));
    for (int64_t e = 0; e < size; ++e) {
      if (data[e] != Pattern(expected, i, e)) Fail("wrong sum at element", e);
    }
  }
  WriteTimes(argv[4], rank, seconds, cpu_seconds, iterations);
  free(cpu_seconds);
  free(seconds);
  free(data);
  End();
  MPI_Finalize();
  return 0;
}
