// python/capi/psring.h: a program in another language calls anything in any
// order, in a job of its own. Pointers are good, as C cannot check them: so
// sizes that a caller may rely on are within its memory, or below zero.
#include <algorithm>
#include <string>
#include <vector>

#include "python/capi/psring.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr int64_t kBytes = 4096;
constexpr int kMaxCalls = 64;
constexpr int kWaitMs = 20'000;

void RequireError(int64_t code) {
  Require(code == PSRING_ERROR || code == PSRING_INVALID, "a code of an error");
  Require(*psring_error() != '\0', "an error says what is wrong");
}

// The result of what was started; 0: it has failed.
int64_t Await(int64_t handle) {
  if (handle <= 0) {
    RequireError(handle);
    return 0;
  }
  const int code = psring_wait(handle, kWaitMs);
  Require(code != PSRING_PENDING, "nothing takes so long in a job of one");
  if (code != PSRING_OK) RequireError(code);
  return code == PSRING_OK ? handle : 0;
}

// The same, of what cannot fail.
int64_t AwaitGood(int64_t handle) {
  const int64_t done = Await(handle);
  Require(done > 0, psring_error());
  return done;
}

// The number of a model of three tensors, in a job of this process alone.
int64_t JoinAndOpen() {
  psring_release(
      AwaitGood(psring_join(R"({"mode":"ring","log_level":"error"})")));
  const int64_t handle = AwaitGood(psring_open_model(
      R"({"update":"fused","optimizer":{"name":"momentum","lr":0.1,"momentum":0.9},
          "bucket_mb":0.001,"tensors":[{"name":"a","shape":[300]},
          {"name":"b","shape":[5,4]},{"name":"c","shape":[]}]})"));
  int64_t model = 0;
  const int code = psring_result(handle, &model, sizeof(model));
  Require(code == PSRING_OK, psring_error());
  psring_release(handle);
  return model;
}

// What any of the calls takes, read in one order.
struct Arguments {
  explicit Arguments(Bytes& input) {
    static const char* const kNames[] = {"a", "b", "c", ""};
    name = kNames[input.Below(4)];
    size = input.Integer();
    small = static_cast<int>(input.Integer());
    other = static_cast<int>(input.Integer());
    scale = input.Flag() ? 1.0 : input.Double();
    has_set = input.Flag();
    if (!has_set) return;
    for (int64_t& part : sizes) part = Within(input.Integer(), 64);
    for (int32_t& rank : ranks) rank = static_cast<int>(input.Integer());
    set_size = std::min(static_cast<int32_t>(input.Integer()), kRanks);
  }

  static constexpr int32_t kRanks = 4;

  static int64_t Within(int64_t size, int64_t most) {
    return size < 0 ? size : size % (most + 1);
  }
  // Of so many bytes each.
  int64_t Elements(int64_t bytes) const { return Within(size, kBytes / bytes); }
  const int32_t* set() const { return has_set ? ranks : nullptr; }

  const char* name;
  int64_t size;
  int small, other;
  double scale;
  bool has_set;
  int64_t sizes[kRanks] = {};
  int32_t ranks[kRanks] = {};
  int32_t set_size = 0;
};

class Program {
 public:
  explicit Program(Bytes& input) : input_(input) {}
  ~Program() {
    for (const int64_t handle : handles_) {
      psring_wait(handle, kWaitMs);
      psring_release(handle);
    }
  }

  void Call() {
    const int call = input_.Below(19);
    if (call < 7) return Collective(call, Arguments(input_));
    if (call < 12) return OfHandle(call, Arguments(input_));
    OfModel(call, Arguments(input_));
  }

  void Look(int64_t model) {
    const bool there = psring_parameters(model) != nullptr;
    Require(there == (psring_gradients(model) != nullptr) &&
                there == (psring_model(model) != nullptr) &&
                there == (psring_traffic(model) != nullptr) &&
                there == (psring_updates(model) >= 0),
            "there is a model, or not");
    Require(psring_job() != nullptr, "the job lives");
  }

  // Of the model that there is.
  static int64_t Model() {
    static const int64_t kModel = JoinAndOpen();
    return kModel;
  }

 private:
  void Collective(int call, const Arguments& a) {
    switch (call) {
      case 0:
        return Started(psring_allreduce(a.name, in_, out_, a.Elements(8),
                                        a.small, a.other, a.scale, a.scale,
                                        a.set(), a.set_size));
      case 1:
        return Started(psring_allgather(
            a.name, in_, a.Elements(1), a.name, out_,
            Arguments::Within(a.small, kBytes), a.set(), a.set_size));
      case 2:
        return Started(psring_broadcast(a.name, in_, a.Elements(1), a.small,
                                        a.name, a.set(), a.set_size));
      case 3:
        return Started(psring_alltoall(a.name, in_, a.sizes, a.name, out_,
                                       Arguments::Within(a.small, kBytes),
                                       a.set(), a.set_size));
      case 4:
        return Started(psring_reducescatter(a.name, in_, out_, a.sizes, a.small,
                                            a.other, a.scale, a.scale, a.set(),
                                            a.set_size));
      case 5:
        return Started(psring_barrier(a.name, a.set(), a.set_size));
      default:
        return Started(psring_join_uneven());
    }
  }

  void OfHandle(int call, const Arguments& a) {
    const size_t i = static_cast<size_t>(a.size);
    const int64_t handle = i < handles_.size() ? handles_[i] : a.size;
    int64_t sizes[Arguments::kRanks];
    switch (call) {
      case 7:
        Done(psring_set_order(handle, a.name));
        return Done(psring_wait(handle, std::min(a.small, kWaitMs)));
      case 8:
        return Done(psring_release(handle));
      case 9:
        return Done(
            psring_result(handle, out_, Arguments::Within(a.small, kBytes)));
      case 10:
        return Done(psring_result_sizes(
            handle, sizes, std::min<int32_t>(a.small, Arguments::kRanks)));
      default: {
        const std::string line = input_.Text();
        return Done(psring_log(line.c_str()));
      }
    }
  }

  void OfModel(int call, const Arguments& a) {
    const int64_t model = a.has_set ? a.size : Model();
    // As many of each as there are at most.
    const int count = std::min(a.small, 2);
    const double rates[] = {a.scale, a.scale};
    const float* const slots[] = {reinterpret_cast<const float*>(in_),
                                  reinterpret_cast<const float*>(in_)};
    float* const into[] = {reinterpret_cast<float*>(out_),
                           reinterpret_cast<float*>(out_)};
    switch (call) {
      case 12:
        return Started(
            psring_begin(model, a.other == 0 ? nullptr : slots, count));
      case 13:
        return Done(psring_set_rates(model, rates, count));
      case 14:
        return Done(psring_submit(model, a.small));
      case 15:
        return Done(psring_finish(model));
      case 16:
        return Started(psring_synchronise(model));
      case 17:
        return Started(psring_fetch_slots(model, into, count));
      default:
        return Look(model);
    }
  }

  void Started(int64_t handle) {
    if (handle <= 0) return RequireError(handle);
    handles_.push_back(handle);
  }
  static void Done(int code) {
    if (code != PSRING_OK && code != PSRING_PENDING) RequireError(code);
  }

  // What was released may be read still.
  static inline char in_[kBytes], out_[kBytes];

  Bytes& input_;
  std::vector<int64_t> handles_;
};

}  // namespace

// One call.
Input Call(int call, int64_t size, int small, int other = 0,
           bool has_set = false) {
  Input input;
  input.Byte(call).Byte(0).Integer(size).Integer(small).Integer(other);
  input.Byte(1).Byte(has_set ? 1 : 0);
  return input;
}

// The same among the ranks {0}.
Input CallAmongItself(int call, int64_t size, int small, int other = 0) {
  Input input = Call(call, size, small, other, /*has_set=*/true);
  for (int i = 0; i < Arguments::kRanks; ++i) input.Integer(5);
  for (int i = 0; i < Arguments::kRanks; ++i) input.Integer(0);
  input.Integer(1);
  return input;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (int call = 0; call < 7; ++call) {
    for (const Input& collective :
         {Call(call, 10, PSRING_FLOAT32, PSRING_SUM),
          CallAmongItself(call, 10, PSRING_FLOAT32, PSRING_SUM)}) {
      seeds.push_back(collective.bytes() + Call(7, 0, 1000).bytes() +
                      Call(10, 0, 1).bytes() + Call(9, 0, 10).bytes() +
                      Call(8, 0, 0).bytes());
    }
  }
  std::string step = Call(12, 0, 0).bytes() + Call(7, 0, 1000).bytes();
  for (int bucket = 0; bucket < 3; ++bucket) {
    step += Call(14, 0, bucket).bytes();
  }
  for (const int call : {15, 16, 17, 18}) step += Call(call, 0, 0).bytes();
  seeds.push_back(step);
  seeds.push_back(Call(11, 0, 0).bytes() +
                  Input().Text(R"({"event":"epoch","loss":0.5})").bytes());
  return seeds;
}

}  // namespace psring::fuzz

// What was released goes on beside the next inputs, and is no leak.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::Program program(input);
  program.Look(fuzz::Program::Model());
  for (int i = 0; i < fuzz::kMaxCalls && !input.empty(); ++i) program.Call();
  return 0;
}
