#include "lab/bench/bench_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lab/page/format.h"

namespace psring {
namespace {

constexpr int kBarWidth = 24;

}  // namespace

void BenchProgress::OnStart(const std::string& name, Time now) {
  started_ = std::min(started_, now);
  std::string left;
  if (done_ > 0) {
    const absl::Duration each = (now - started_) / done_;
    left = absl::StrCat(
        "  ", FormatClock(absl::ToDoubleSeconds(each * (expected_ - done_))),
        " left");
  }
  block_.Draw({absl::StrCat(
      ProgressBar(static_cast<double>(done_) / std::max(expected_, 1),
                  kBarWidth),
      " ", done_ + 1, " of ", expected_, ": ", name, left)});
}

void BenchProgress::OnDone(const std::string& result) {
  ++done_;
  block_.Print(result + "\n");
}

}  // namespace psring
