// The factor by which a loss in fp16 is multiplied, so that small gradients do
// not vanish: as large as gradients stay finite. (Micikevicius et al. 2018,
// "Mixed precision training"; the constants are torch.amp.GradScaler's.)
#ifndef PSRING_WORKER_LOSS_SCALER_H_
#define PSRING_WORKER_LOSS_SCALER_H_

#include <cstdint>

namespace psring {

// A plain value. Each worker has its own: gradients are divided by it before
// they leave.
class LossScaler {
 public:
  static constexpr double kFirst = 65536;
  static constexpr int64_t kGrowthInterval = 2000;  // steps
  static constexpr double kMost = 16777216;  // 2^24: float32 counts so far

  double scale() const { return scale_; }

  // A step whose gradients are finite. After so many in a row the factor
  // doubles.
  void Succeeded() {
    if (++num_good_ < kGrowthInterval) return;
    num_good_ = 0;
    if (scale_ < kMost) scale_ *= 2;
  }

  // One whose gradients are infinite: it is computed again with half the
  // factor. False: that cannot help, training has diverged.
  bool Halve() {
    num_good_ = 0;
    if (scale_ <= 1) return false;
    scale_ /= 2;
    return true;
  }

 private:
  double scale_ = kFirst;
  int64_t num_good_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_LOSS_SCALER_H_
