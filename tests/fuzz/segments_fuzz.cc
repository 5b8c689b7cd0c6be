// ring/message_plan.h: what a rank takes for the next segment of a collective,
// whoever says anything, and what it makes of those that are.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/layout.h"
#include "ring/message_plan.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr int64_t kElements[] = {0, 1, 5, 100, 4000, 70'000, 140'000};

// Every rank brings its number, counted from 1, in every element.
float ValueOf(int rank, int n) { return static_cast<float>(rank % n + 1); }

Frame FrameOf(const std::vector<float>& values) {
  return Frame::Copy({reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(float)});
}

class Collective {
 public:
  explicit Collective(Bytes& input) {
    ranks_.n = 1 + input.Below(6);
    ranks_.nodes = SingleNodes(ranks_.n);
    if (ranks_.n > 2 && input.Below(4) == 0) {  // two on one host
      ranks_.nodes.pop_back();
      ranks_.nodes.back().size = 2;
    }
    rank_ = input.Below(ranks_.n);
    shape_.kind = static_cast<CollectiveKind>(input.Below(5));
    shape_.num_elements = kElements[input.Below(7)];
    shape_.from = input.Below(ranks_.n);
    shape_.to = (shape_.from + 1) % ranks_.n;
    if (ranks_.n == 1) shape_.kind = CollectiveKind::kAllReduce;
    routes_ = RoutesOf(ranks_, shape_);
    plan_.emplace(PlanOf(ranks_, shape_, rank_));
    own_.assign(static_cast<size_t>(shape_.num_elements),
                ValueOf(rank_, ranks_.n));
    if (plan_->whole.has_value()) plan_->whole->Begin(own_.data());
    for (int r = 0; r < static_cast<int>(routes_.size()); ++r) {
      const Route& route = routes_[static_cast<size_t>(r)];
      for (int v = 1; v < static_cast<int>(route.visits.size()); ++v) {
        if (route.visits[static_cast<size_t>(v)].agent != rank_) continue;
        next_[{r, v}] = route.range.begin;
      }
    }
  }

  // Somebody says that this is the next.
  void Say(int route, int visit, int from, Range segment) {
    RankVisit* const due = plan_->schedule.Due(route, visit, from, segment);
    Require((due != nullptr) == IsNext(route, visit, from, segment),
            "what is next is due, and nothing else");
    if (due == nullptr) return;
    plan_->schedule.Take(*due, segment);
    next_.at({route, visit}) = segment.end;
    const bool apart = routes_[static_cast<size_t>(route)].apart;
    if (apart && plan_->whole.has_value()) return AddRound(route, from);
    if (apart) AddSegment(from, segment);
  }

  // Of what is missing, what the input picks; `lie`: with something changed.
  void SayOne(Bytes& input, bool lie) {
    if (next_.empty()) return;
    auto place = next_.begin();
    std::advance(place, input.Byte() % next_.size());
    auto [route, visit] = place->first;
    const Route& way = routes_[static_cast<size_t>(route)];
    if (place->second >= way.range.end) return;
    int from = way.visits[static_cast<size_t>(visit) - 1].agent;
    Range segment = SegmentAt(way.range, place->second);
    if (lie) {
      const int by = 1 + input.Below(3);
      switch (input.Below(5)) {
        case 0:
          route += by;
          break;
        case 1:
          visit += by;
          break;
        case 2:
          from += by;
          break;
        case 3:
          segment.begin += by;
          break;
        default:
          segment.end -= by;
      }
    }
    Say(route, visit, from, segment);
  }

  void End() {
    for (const auto& [place, next] : next_) {
      const Route& way = routes_[static_cast<size_t>(place.first)];
      while (next < way.range.end) {
        Require(!plan_->schedule.complete(), "something is missing");
        Require(plan_->schedule.awaited() >= 0, "it is awaited from somebody");
        Say(place.first, place.second,
            way.visits[static_cast<size_t>(place.second) - 1].agent,
            SegmentAt(way.range, next));
      }
    }
    Require(plan_->schedule.complete(), "all has come");
    Require(plan_->schedule.awaited() == -1, "nobody is awaited");
    if (plan_->slice.has_value()) {
      Require(summed_ == MySlice().size(), "the whole slice has been summed");
    }
    if (!plan_->whole.has_value() || shape_.num_elements == 0) return;
    Require(plan_->whole->complete(), "all rounds have come");
    plan_->whole->Finish(own_.data(), 1.0f);
    RequireSums(own_);
  }

 private:
  Range MySlice() const {
    return NearEqualPart({0, shape_.num_elements}, ranks_.n, rank_);
  }

  bool IsNext(int route, int visit, int from, Range segment) const {
    const auto found = next_.find({route, visit});
    if (found == next_.end()) return false;
    const Route& way = routes_[static_cast<size_t>(route)];
    return from == way.visits[static_cast<size_t>(visit) - 1].agent &&
           found->second < way.range.end &&
           segment == SegmentAt(way.range, found->second);
  }

  void RequireSums(const std::vector<float>& sums) const {
    float sum = 0;
    for (int rank = 0; rank < ranks_.n; ++rank) sum += ValueOf(rank, ranks_.n);
    Require(std::all_of(sums.begin(), sums.end(),
                        [&](float value) { return value == sum; }),
            "it is the sum of all ranks' values");
  }

  void AddSegment(int from, Range segment) {
    Require(Intersect(segment, MySlice()) == segment, "it is of this slice");
    const std::vector<float> values(static_cast<size_t>(segment.size()),
                                    ValueOf(from, ranks_.n));
    const auto sum =
        plan_->slice->Add(from, segment, FrameOf(values),
                          own_.data() + segment.begin, /*scale=*/1.0f);
    Require(sum.has_value() == (++parts_[segment.begin] == ranks_.n - 1),
            "the last of its values makes the sum");
    if (!sum.has_value()) return;
    summed_ += segment.size();
    std::vector<float> sums(values.size());
    Require(sum->size() == sums.size() * sizeof(float), "of all elements");
    std::memcpy(sums.data(), sum->data(), sum->size());
    RequireSums(sums);
  }

  // The values of the sender and of ranks behind it.
  void AddRound(int route, int from) {
    const Range range = routes_[static_cast<size_t>(route)].range;
    std::vector<float> values;
    for (int64_t i = 0; i < range.size(); ++i) {
      const auto behind = static_cast<int>(i / shape_.num_elements);
      values.push_back(ValueOf(from + behind, ranks_.n));
    }
    plan_->whole->Add(route / ranks_.n, FrameOf(values));
  }

  RingRanks ranks_;
  int rank_ = 0;
  CollectiveShape shape_;
  std::vector<Route> routes_;
  std::optional<MessagePlan> plan_;
  std::vector<float> own_;
  std::map<std::pair<int, int>, int64_t> next_;  // by route and visit
  std::map<int64_t, int> parts_;                 // that have come of a segment
  int64_t summed_ = 0;                           // elements
};

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (int kind = 0; kind < 5; ++kind) {
    for (const int elements : {3, 5, 6}) {
      for (const int ranks : {1, 3, 4}) {
        Input input;
        input.Byte(ranks);
        if (ranks > 1) input.Byte(kind);
        input.Byte(1).Byte(kind).Byte(elements).Byte(0);
        for (int i = 0; i < 8; ++i) {
          input.Byte(1).Byte(i * 5).Byte(2).Byte(i).Byte(0).Byte(i % 5);
        }
        input.Byte(0).Integer(2).Integer(1).Integer(0).Integer(0).Integer(99);
        seeds.push_back(input.bytes());
      }
    }
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::Collective collective(input);
  while (!input.empty()) {
    const int sort = input.Below(3);
    if (sort > 0) {
      collective.SayOne(input, /*lie=*/sort == 2);
      continue;
    }
    const auto route = static_cast<int>(input.Integer());
    const auto visit = static_cast<int>(input.Integer());
    const auto from = static_cast<int>(input.Integer());
    const int64_t begin = input.Integer();
    collective.Say(route, visit, from, {begin, input.Integer()});
  }
  collective.End();
  return 0;
}
