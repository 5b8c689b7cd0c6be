// A model, data and an exchange for tests of the training loop alone.
#ifndef PSRING_TESTS_WORKER_TINY_TRAINING_H_
#define PSRING_TESTS_WORKER_TINY_TRAINING_H_

#include <ATen/ops/rand.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/state/state_files.h"
#include "worker/data/dataset.h"
#include "worker/models/classifier.h"
#include "worker/models/layers.h"

namespace psring {

// Two layers, on images of one pixel. Notes which pixels it is trained on, and
// a number that chance gives it each time, as it gives dropout its own.
class TinyModel : public Classifier {
 public:
  TinyModel() {
    AddModule("fc1", fc1_);
    AddModule("fc2", fc2_);
  }

  at::Tensor Forward(at::Tensor x) override {
    x = x.flatten(1);
    for (int64_t i = 0; training() && i < x.size(0); ++i) {
      trained_on.push_back(std::lround(x.select(0, i).item<float>()));
    }
    if (training() && on_forward) on_forward();
    if (!training() && on_evaluation) on_evaluation();
    if (training()) chances.push_back(at::rand({1}).item<float>());
    TORCH_CHECK_WITH(OutOfMemoryError, !training() || !no_room_in_training,
                     "CUDA out of memory. 13.94 MiB is free");
    TORCH_CHECK_WITH(OutOfMemoryError, training() || !no_room_in_evaluation,
                     "CUDA out of memory. 13.94 MiB is free");
    x = fc2_(fc1_(x));
    if (training() && overflow_above >= 0) {
      x.register_hook([most = overflow_above](const at::Tensor& gradient) {
        const bool overflows = gradient.abs().max().item<double>() > most;
        return overflows ? gradient.mul(INFINITY) : gradient;
      });
    }
    if (blind) {
      x = x.mul(0);
      x.select(1, 0).add_(1);
    }
    return x.log_softmax(1);
  }

  bool no_room_in_training = false, no_room_in_evaluation = false;
  double overflow_above = -1;  // of gradients of the scores; negative: never
  std::function<void()> on_forward, on_evaluation;  // in training, or else
  bool blind = false;  // whatever it sees, class 0 has e times the probability
  std::vector<int> trained_on;
  std::vector<float> chances;

 private:
  const Linear fc1_{1, 3};
  const Linear fc2_{3, 2};
};

// `size` images, whose only pixel is their number.
inline Dataset Numbers(int size) {
  Dataset dataset;
  for (int i = 0; i < size; ++i) {
    dataset.pixels.push_back(i);
    dataset.labels.push_back(i % 2);
  }
  dataset.shape = {1, 1, 1, 2};
  dataset.mean = {0};
  dataset.stddev = {1.0 / 255};
  return dataset;
}

// Notes what it is asked to do, and does nothing but count steps.
class FakeExchange : public GradientExchange {
 public:
  FakeExchange(FlatModel& flat, int64_t step) : flat_(flat), step_(step) {}

  absl::Status Join(std::vector<FlatBuffer>, ParametersArrived, Time) override {
    calls.push_back("join");
    return absl::OkStatus();
  }

  absl::Status Submit(int bucket) override {
    calls.push_back(absl::StrCat("submit ", bucket));
    double squares = 0;
    for (const float g : flat_.gradients.span()) squares += g * g;
    norms.push_back(std::sqrt(squares));
    return submit_result;
  }

  absl::Status Finish(Time) override {
    calls.push_back(absl::StrCat("finish ", step_));
    ++step_;
    if (on_finish) on_finish();
    return finish_result;
  }

  int64_t step() const override { return step_; }
  void set_step(int64_t step) { step_ = step; }

  absl::Status Synchronise(Before next, Time) override {
    calls.push_back(next == Before::kSaveState ? "meet to save"
                                               : "meet to evaluate");
    return absl::OkStatus();
  }

  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time) override {
    calls.push_back("save");
    if (!save_result.ok()) return save_result;
    if (on_save) on_save();
    return WriteStateRange(directory, flat_.layout, {},
                           {0, flat_.layout.num_elements()},
                           flat_.parameters.data(), {});
  }

  absl::Status FetchSlots(absl::Span<float* const>, Time) override {
    return absl::OkStatus();
  }

  Traffic traffic() const override { return {}; }

  // All but Submit.
  std::vector<std::string> CallsBetweenSteps() const {
    std::vector<std::string> others;
    for (const std::string& call : calls) {
      if (call.rfind("submit", 0) != 0) others.push_back(call);
    }
    return others;
  }

  std::vector<std::string> calls;
  std::vector<double> norms;  // of all gradients, at each Submit
  std::function<void()> on_finish, on_save;
  absl::Status submit_result, finish_result, save_result;

 private:
  FlatModel& flat_;
  int64_t step_;
};

}  // namespace psring

#endif  // PSRING_TESTS_WORKER_TINY_TRAINING_H_
