#include "worker/torch/torch_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "absl/status/status.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Error>
absl::Status Caught(const Error& error) {
  return CatchTorchErrors([&error]() -> absl::Status { throw error; },
                          [] { return std::string("training, step 3"); });
}

TEST(TorchError, SaysWhatWasDoneWhenLibtorchFailed) {
  const absl::Status status = Caught(std::runtime_error("sizes do not match"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "training, step 3: libtorch: sizes do not match");
}

TEST(TorchError, AThreadThatCannotBeHadIsNoErrorOfLibtorchs) {
  const absl::Status status = Caught(std::system_error(
      std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("cannot start a thread: "),
                    HasSubstr("Raise the limit of processes")));
}

TEST(TorchError, AnErrorOnItsWayThroughLibtorchStaysWhatItWas) {
  EXPECT_EQ(Caught(StatusError(absl::AbortedError("the job has ended"))),
            absl::AbortedError("the job has ended"));
}

}  // namespace
}  // namespace psring
