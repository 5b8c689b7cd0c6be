// The only file that knows nccl.h.
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ring/nccl/nccl_api.h"

namespace psring {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 28, 0);
static_assert(NCCL_VERSION_CODE >= kOldest, "nccl.h is older than 2.28");
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(std::is_pointer_v<ncclComm_t>);
static_assert(kNcclSuccess == ncclSuccess);
static_assert(kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);

ncclComm_t CommOf(NcclComm comm) { return static_cast<ncclComm_t>(comm); }

cudaStream_t StreamOf(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

// Finds functions in a library, and remembers which it has not.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  // `function` is declared by nccl.h and only lends its type.
  template <typename Function>
  Function* Find(Function*, const char* name) {
    void* const symbol = dlsym(library_, name);
    if (symbol == nullptr) missing_.push_back(name);
    return reinterpret_cast<Function*>(symbol);
  }

  const std::vector<std::string>& missing() const { return missing_; }

 private:
  void* const library_;
  std::vector<std::string> missing_;
};

#define PSRING_FIND(name) \
  symbols.Find(static_cast<decltype(&name)>(nullptr), #name)

void FillCommunicator(Symbols& symbols, NcclApi& api) {
  api.unique_id = [f = PSRING_FIND(ncclGetUniqueId)](NcclId* id) {
    return f(reinterpret_cast<ncclUniqueId*>(id));
  };
  api.init_rank = [f = PSRING_FIND(ncclCommInitRankConfig)](
                      NcclComm* comm, int num_ranks, const NcclId& id,
                      int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId unique_id;
    std::memcpy(&unique_id, &id, sizeof(id));
    ncclComm_t created = nullptr;
    const ncclResult_t result =
        f(&created, num_ranks, unique_id, rank, &config);
    *comm = created;
    return result;
  };
  api.async_error = [f = PSRING_FIND(ncclCommGetAsyncError)](
                        NcclComm comm, NcclResult* state) {
    ncclResult_t now = ncclSuccess;
    const ncclResult_t result = f(CommOf(comm), &now);
    *state = now;
    return result;
  };
  api.finalize = [f = PSRING_FIND(ncclCommFinalize)](NcclComm comm) {
    return f(CommOf(comm));
  };
  api.destroy = [f = PSRING_FIND(ncclCommDestroy)](NcclComm comm) {
    return f(CommOf(comm));
  };
  api.abort = [f = PSRING_FIND(ncclCommAbort)](NcclComm comm) {
    return f(CommOf(comm));
  };
  api.register_buffer = [f = PSRING_FIND(ncclCommRegister)](
                            NcclComm comm, void* data, size_t size_bytes,
                            void** handle) {
    return f(CommOf(comm), data, size_bytes, handle);
  };
  api.deregister_buffer = [f = PSRING_FIND(ncclCommDeregister)](NcclComm comm,
                                                                void* handle) {
    return f(CommOf(comm), handle);
  };
}

void FillCollectives(Symbols& symbols, NcclApi& api) {
  api.group_start = [f = PSRING_FIND(ncclGroupStart)] { return f(); };
  api.group_end = [f = PSRING_FIND(ncclGroupEnd)] { return f(); };
  api.all_reduce = [f = PSRING_FIND(ncclAllReduce)](const float* in, float* out,
                                                    size_t count, NcclComm comm,
                                                    void* stream) {
    return f(in, out, count, ncclFloat32, ncclSum, CommOf(comm),
             StreamOf(stream));
  };
  api.broadcast = [f = PSRING_FIND(ncclBroadcast)](
                      const float* in, float* out, size_t count, int root,
                      NcclComm comm, void* stream) {
    return f(in, out, count, ncclFloat32, root, CommOf(comm), StreamOf(stream));
  };
}

absl::StatusOr<NcclApi> FromLibrary(void* library) {
  Symbols symbols(library);
  NcclApi api;
  api.version = PSRING_FIND(ncclGetVersion);
  api.error_string = [f = PSRING_FIND(ncclGetErrorString)](NcclResult result) {
    return std::string(f(static_cast<ncclResult_t>(result)));
  };
  api.last_error = [f = PSRING_FIND(ncclGetLastError)] {
    return std::string(f(nullptr));
  };
  FillCommunicator(symbols, api);
  FillCollectives(symbols, api);
  int version = 0;
  if (!api.version || api.version(&version) != kNcclSuccess ||
      version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(
        kLibrary, " is version ", NcclVersionName(version),
        "; psring needs 2.28 or newer. Where PyTorch has loaded it: `pip "
        "install -U nvidia-nccl-cu",
        CUDART_VERSION / 1000,
        "`; else name the folder of a newer one in LD_LIBRARY_PATH"));
  }
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kLibrary, " ", NcclVersionName(version), " lacks ",
                     absl::StrJoin(symbols.missing(), ", "),
                     "; install an unchanged NCCL of 2.28 or newer"));
  }
  return api;
}

#undef PSRING_FIND

}  // namespace

absl::StatusOr<NcclApi> LoadNccl(absl::Span<const std::string> directories) {
  std::vector<std::string> paths = {kLibrary};
  for (const std::string& directory : directories) {
    paths.push_back(absl::StrCat(directory, "/", kLibrary));
  }
  std::vector<std::string> errors;
  for (const std::string& path : paths) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return FromLibrary(library);
    errors.push_back(dlerror());
  }
  return absl::NotFoundError(absl::StrCat(
      "NCCL cannot be loaded (", absl::StrJoin(errors, "; "),
      "); install NCCL 2.28 or newer, or name its folder in LD_LIBRARY_PATH"));
}

}  // namespace psring
