#include "ring/collective_plan.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cluster/process_names.h"
#include "common/fnv.h"

namespace psring {
namespace {

constexpr char kNoMore[] = "nothing more";

// Of the names and places of the bucket's tensors.
uint64_t DigestOf(const Layout& layout, int bucket) {
  Fnv digest;
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const int i = static_cast<int>(t);
    if (layout.bucket_of_tensor(i) != bucket) continue;
    const Range place = layout.tensor(i);
    digest.Add(absl::StrCat(place.begin, "-", place.end, " ",
                            layout.tensors()[t].name(), "\n"));
  }
  return digest.value();
}

using Lines = std::vector<std::string>;

// The first line of `a` that `b` lacks. All lines of a plan differ.
std::string FirstLacking(const Lines& a, const Lines& b) {
  for (const std::string& line : a) {
    if (std::find(b.begin(), b.end(), line) == b.end()) return line;
  }
  return kNoMore;
}

}  // namespace

std::string PlanText(const Layout& layout, absl::Span<const int> buckets,
                     int64_t sequence) {
  std::string text = absl::StrCat("collectives from number ", sequence, " on");
  for (const int bucket : buckets) {
    absl::StrAppend(&text, "\nallreduce of bucket ", bucket, ": ",
                    layout.bucket(bucket).size(), " x float32, digest ",
                    absl::Hex(DigestOf(layout, bucket)));
  }
  return text;
}

absl::StatusOr<std::vector<int>> AgreeOnPlan(
    absl::Span<const std::string> plans, int self, const proto::Welcome& job) {
  if (plans.size() != static_cast<size_t>(job.workers_size())) {
    return absl::InternalError(
        absl::StrCat(plans.size(), " of ", job.workers_size(),
                     " workers have said what they launch"));
  }
  const Lines first = absl::StrSplit(plans[0], '\n');
  for (int r = 1; r < static_cast<int>(plans.size()); ++r) {
    const Lines other = absl::StrSplit(plans[r], '\n');
    const std::string theirs = FirstLacking(other, first);
    const std::string ours = FirstLacking(first, other);
    if (theirs == kNoMore && ours == kNoMore) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "workers are about to launch different collectives, which would hang: ",
        Describe(job.workers(0)), ": ", ours, "; ", Describe(job.workers(r)),
        ": ", theirs, "; start all with one build of psring"));
  }
  const Lines own = absl::StrSplit(plans[self], '\n');
  std::vector<int> order;
  std::set<int> places;
  for (size_t i = 1; i < first.size(); ++i) {
    const auto place = std::find(own.begin(), own.end(), first[i]);
    order.push_back(static_cast<int>(place - own.begin()) - 1);
    places.insert(order.back());
  }
  // This process makes each of its own once.
  if (own.size() != first.size() || places.size() != order.size() ||
      places.contains(-1)) {
    return absl::InternalError(
        absl::StrCat(Describe(job.workers(0)),
                     " names a collective twice that it is about to launch"));
  }
  return order;
}

}  // namespace psring
