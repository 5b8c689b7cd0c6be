/* psring for other languages: a job, its models, and collectives among its
 * workers. One job a process.
 *
 * Every function returns PSRING_OK, PSRING_PENDING or a negative code, unless
 * it says otherwise; psring_error() then says what is wrong, of the calling
 * thread's last failed call. Of other functions, null says so, and of
 * psring_updates a negative number. Texts are UTF-8 and live until this
 * thread's next call. Options are JSON objects; a key that is not known is an
 * error. Nothing here throws, and nothing calls back.
 *
 * What blocks is started by one call, which gives a handle (above 0), and
 * waited for by psring_wait, a little at a time, so that the caller can look
 * after signals in between. psring_finish and psring_wait_interruptibly block
 * by themselves, and SIGINT ends them.
 *
 * Threads: any thread may call any function; calls for one model come one at a
 * time.
 */
#ifndef PSRING_PYTHON_CAPI_PSRING_H_
#define PSRING_PYTHON_CAPI_PSRING_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of this header that a caller may notice. */
#define PSRING_ABI 8
#define PSRING_VERSION "0.2.0"

enum {
  PSRING_OK = 0,
  PSRING_PENDING = 1,
  PSRING_ERROR = -1,       /* the job or the call failed */
  PSRING_INTERRUPTED = -2, /* SIGINT came while a call was waiting */
  PSRING_INVALID = -3      /* the caller's arguments are wrong; the job lives */
};

enum { /* dtypes */
       PSRING_UINT8 = 0,
       PSRING_INT8 = 1,
       PSRING_INT16 = 2,
       PSRING_INT32 = 3,
       PSRING_INT64 = 4,
       PSRING_FLOAT16 = 5,
       PSRING_BFLOAT16 = 6,
       PSRING_FLOAT32 = 7,
       PSRING_FLOAT64 = 8,
       PSRING_BOOL = 9
};

enum { /* reductions; AVERAGE: of integers it is PSRING_INVALID */
       PSRING_SUM = 0,
       PSRING_AVERAGE = 1,
       PSRING_MIN = 2,
       PSRING_MAX = 3,
       PSRING_PRODUCT = 4
};

int psring_abi(void);
/* "0.2.0". */
const char* psring_version(void);
const char* psring_error(void);
/* 1: models may lie on GPUs; 0: it was built without CUDA. */
int psring_cuda_built(void);
/* What `sync` of a model may be, the default first: [{"name", "barrier": all
 * take every step together, "bounded": needs `staleness`}]. */
const char* psring_policies(void);

/* ---- The job ------------------------------------------------------------- */

/* Joins the job; the handle is done when all processes have. Keys, all
 * optional, each before the environment (PSRING_MODE ..., else torchrun's, Open
 * MPI's, Slurm's), and that before the default: mode "ring" | "ps"; servers
 * (1): number of servers, each a thread of one of the first workers;
 * servers_per_node (0): in place of servers, as many on every host, in its
 * first worker; rank, size: of the workers; coordinator "HOST:PORT", which rank
 * 0 hosts unless psring run does; own_servers (true): false where servers are
 * started by hand (psring ps); advertise, interface, ports ("FIRST-LAST", on
 * which to listen), same_host ("auto" | "off"); join_timeout_s (60),
 * heartbeat_timeout_s (5: how long another process or its network may be
 * silent before it counts as lost), step_timeout_s (60), progress_timeout_s (0,
 * for ever: how long the program may go without a call before it counts as
 * hung); hang_signal (0, none): what this process sends itself where the job
 * ends because it hangs; shard_threads (0); log_level ("warn"); metrics_dir;
 * tensorboard; page ("HOST:PORT", where rank 0 shows the job:
 * docs/monitoring.md), page_token_file. Without any launcher: a job of one. */
int64_t psring_join(const char* options);

/* "HOST:PORT" at which the coordinator listens that this process hosts, once it
 * does, whether or not the job is complete: what to tell the others where
 * rank 0 has joined with port 0. Else "". */
const char* psring_coordinator(void);

/* {"rank", "size", "local_rank", "local_size", "cross_rank", "cross_size",
 * "mode", "servers", "address" (this process's, numeric), "hosts": [by rank],
 * "pids": [by rank]}. Null before the job is complete. */
const char* psring_job(void);

/* Ends this process's part: error "" where it has done it. Done when the job
 * has ended for all; with an error at once. */
int64_t psring_leave(const char* error);

/* The first failure of the job as this process knows it, its culprit in front;
 * "" while there is none. Never blocks. */
const char* psring_failure(void);

/* Whether this program ends early when psring_stop_asked() says so; servers
 * that have SIGTERM hand it on then, else they end the job. Counts on rank 0;
 * all ranks say the same. */
int psring_heed_stop(int heeds);

/* 1: a server has handed SIGTERM on to this worker, once or more; else 0.
 * Others may not know yet. Never blocks. */
int psring_stop_asked(void);

/* Adds a line to this process's metrics, in the folder of metrics_dir: a JSON
 * object with "event" (common/trace/metrics_file.h), and of rank 0 to
 * TensorBoard's, in that of tensorboard. Without a folder: nothing. */
int psring_log(const char* line);

/* In a child of fork: forgets the job, which stays the parent's. Every later
 * call is PSRING_INVALID there. */
void psring_forked(void);

/* Waits for a handle, at most timeout_ms; with 0 it only looks, and the program
 * does not count as one that waits for others. What is done stays until
 * psring_release, which may come before: the operation is then given up, and
 * fails on the ranks that need this one. */
int psring_wait(int64_t handle, int timeout_ms);
/* Waits until it is done, for a thread in which the program does not look after
 * signals: SIGINT, whose handler is called as ever, ends the job and the wait,
 * with PSRING_INTERRUPTED. */
int psring_wait_interruptibly(int64_t handle);
int psring_release(int64_t handle);

/* ---- Collectives --------------------------------------------------------- */

/* Among the ranks of `set` (sorted; null: all). All of them call with the same
 * name, the same dtype, reduction and, where it says so, the same count;
 * otherwise all of them fail, and the error names the ranks and both sides. The
 * order of calls with different names is free; but where the main threads of
 * two ranks wait for each other's calls for some seconds, both fail. A name may
 * be used again once the handle is done. Memory stays as it is until then. In
 * both modes. */

/* out = postscale * reduction(prescale * in), elementwise, the same bits on all
 * ranks: in the canonical order, in which slice c of as many as there are ranks
 * begins with rank c + 1; 16-bit floats in float32. out may be in. */
int64_t psring_allreduce(const char* name, const void* in, void* out,
                         int64_t count, int dtype, int reduction,
                         double prescale, double postscale, const int32_t* set,
                         int32_t set_size);
/* Everybody's bytes, by rank of the set, whatever their sizes; see
 * psring_result. `tag`: a text that must be equal everywhere. `out`: null, or
 * where all of them go if they are out_bytes, which takes a copy less. It
 * overlaps nothing of `in` but this rank's own bytes where they go. */
int64_t psring_allgather(const char* name, const void* in, int64_t bytes,
                         const char* tag, void* out, int64_t out_bytes,
                         const int32_t* set, int32_t set_size);
/* data becomes that of the rank `root` (of the job). */
int64_t psring_broadcast(const char* name, void* data, int64_t bytes, int root,
                         const char* tag, const int32_t* set, int32_t set_size);
/* bytes[i] of `in`, one after the other, go to the i-th rank of the set. `out`:
 * as psring_allgather's. */
int64_t psring_alltoall(const char* name, const void* in, const int64_t* bytes,
                        const char* tag, void* out, int64_t out_bytes,
                        const int32_t* set, int32_t set_size);
/* Of the reduction of `in`, the elements from the sum of counts before this
 * rank on: counts[i] for the i-th rank of the set. out does not overlap in. */
int64_t psring_reducescatter(const char* name, const void* in, void* out,
                             const int64_t* counts, int dtype, int reduction,
                             double prescale, double postscale,
                             const int32_t* set, int32_t set_size);
int64_t psring_barrier(const char* name, const int32_t* set, int32_t set_size);
/* This rank has no more data: until every rank has called it, it takes part
 * with zeros in others' barriers, and in their allreduces and reducescatters
 * that sum or average over all ranks; whatever else others begin with it fails.
 * The result, 4 bytes: the last rank to call it, an int32. */
int64_t psring_join_uneven(void);

/* The collective is one of those that the main thread (that of psring_join)
 * starts in the same order on all ranks, all of which it has marked with the
 * same `order`. Where two ranks wait for different ones of them, in whatever
 * threads, both fail within seconds. Right after the start, by the thread that
 * has started it: from others than the main one it does nothing. */
int psring_set_order(int64_t handle, const char* order);

/* What allgather and alltoall brought: the bytes of each rank of the set, and
 * all of them copied to `out`, unless they went to the call's. After
 * psring_wait has said OK. */
int psring_result_sizes(int64_t handle, int64_t* bytes, int32_t set_size);
int psring_result(int64_t handle, void* out, int64_t bytes);

/* ---- Models -------------------------------------------------------------- */

/* Opens a model; all workers do, with the same options and in the same order.
 * Keys: id; tensors [{"name", "shape"}] in the order of the forward pass, so
 * that the last one is in bucket 0; bucket_mb (25); update "local" | "fused";
 * sync ("bsp"), staleness, backup_workers, staleness_lr, delay_compensation;
 * compress ("none"); and for "fused" momenta (false): they change too, see
 * psring_set_rates; optimizer {"name": sgd | momentum | nesterov | adam |
 * adamw, "lr", "momentum", "weight_decay", "beta1", "beta2", "epsilon",
 * "epsilon_hat" (false)}, or groups [{...}] of them, all of the same name, with
 * tensor_groups [group of each tensor]; updates: how many the optimizer has
 * made before, 0; device ("cpu"): "cuda:N", the GPU in whose memory parameters
 * and gradients lie; ring_backend ("auto"): what sums them in mode ring,
 * "nccl", "host", or "auto", which is NCCL where every worker has it and a GPU
 * of its own. Once done, psring_result gives the model's number, an int64_t. */
int64_t psring_open_model(const char* options);

/* {"num_elements", "num_buckets", "num_slots", "slot_names", "ring_backend":
 * what sums in mode ring, "tensors": [{"begin", "size", "bucket"}]}: where
 * tensors lie in the flat memory, in elements. */
const char* psring_model(int64_t model);

/* Flat memory of num_elements float32 each. Gradients are the caller's until
 * psring_submit. Parameters are, between psring_finish and the next
 * psring_submit; with update "local" they receive the mean of the gradients. Of
 * a model on a GPU both are the GPU's memory: see psring_set_stream. */
float* psring_parameters(int64_t model);
float* psring_gradients(int64_t model);

/* Before the first step: everybody's parameters become rank 0's; slots (null:
 * the optimizer begins anew) are rank 0's optimizer state, flat memory of
 * num_elements each on the host, which is copied. */
int64_t psring_begin(int64_t model, const float* const* slots,
                     int32_t num_slots);

/* "fused": the learning rate of each group from the next step on; with
 * "momenta" then each group's momentum, which is beta1 of adam and adamw. Not
 * between a step's first psring_submit and the end of its psring_finish. */
int psring_set_rates(int64_t model, const double* rates, int32_t num_rates);

/* Of a model on a GPU: the caller works in this stream (a cudaStream_t; null,
 * as at first: the default one) from now on. Calls are then ordered with the
 * work in the stream, and need not wait for it: psring_begin and psring_submit
 * come behind what is in it, and what comes to it after psring_finish or
 * psring_synchronise finds the new parameters. PSRING_INVALID where the model
 * lies in the host's memory. */
int psring_set_stream(int64_t model, void* stream);

/* This bucket's gradients are ready, once a step. Buckets come in any order,
 * the same on every worker. Never blocks. */
int psring_submit(int64_t model, int32_t bucket);

/* Blocks until the parameters hold what the step has brought, at most for
 * the step timeout; the error names who holds it up. Where NCCL sums it does
 * not block, and what fails afterwards is the error of a later call. With rates
 * of psring_set_rates, where all workers step together, it asks the others
 * after 1, 2, 4, ..., 64, 128, 192, ... steps whether they have the same, and
 * blocks for that. */
int psring_finish(int64_t model);

/* How many updates the optimizer has made, with those before this model. Where
 * every gradient is an update ("ssp", "async"), as many as if all workers had
 * made this one's steps. */
int64_t psring_updates(int64_t model);

/* Every worker is here, and all hold the same parameters, with every gradient
 * in them. With "ssp" and "async" PSRING_INVALID between a step's first
 * psring_submit and the end of its psring_finish, as psring_fetch_slots. */
int64_t psring_synchronise(int64_t model);

/* All workers call it, between steps: rank 0's slots receive the optimizer's
 * state, all "num_slots" of it, flat memory on the host as for psring_begin.
 * The others' slots are not used. For update "fused". */
int64_t psring_fetch_slots(int64_t model, float* const* slots,
                           int32_t num_slots);

/* {"sent", "received", "gradients_sent"} in bytes since the start. */
const char* psring_traffic(int64_t model);

/* All workers close it. Its memory stays until psring_free_model. */
int64_t psring_close_model(int64_t model);

/* Frees the memory of a model that is closed, or was open when this process
 * left its job, which programs may use until then. `parameters`: its
 * psring_parameters. PSRING_INVALID: there is no such model. Waits for what a
 * GPU still does, where the model lies on one. */
int psring_free_model(const void* parameters);

#ifdef __cplusplus
}
#endif

#endif /* PSRING_PYTHON_CAPI_PSRING_H_ */
