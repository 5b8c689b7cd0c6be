// common/cluster/membership.h: any peer says anything at any time.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::ControlMessage;

constexpr int kPeers = 6;

MembershipOptions OptionsOf(int shape) {
  MembershipOptions options;
  options.mode = shape % 2 == 0 ? proto::PARAMETER_SERVER : proto::RING;
  options.num_servers = shape % 2 == 0 ? 1 : 0;
  options.num_workers = 1 + shape / 2 % 3;
  options.job_epoch = 7;
  options.public_keys = shape >= 6;
  return options;
}

std::string PeerOf(int number) { return absl::StrCat("peer ", number); }

// What a correct process of the job would say; the fuzzer then changes it.
proto::Join JoinOf(const MembershipOptions& options, int peer) {
  proto::Join join;
  join.set_protocol_version(kProtocolVersion);
  join.set_role(peer == 0 && options.num_servers > 0 ? proto::PS
                                                     : proto::WORKER);
  join.set_wanted_rank(-1);
  join.set_host("a");
  join.set_pid(100 + peer);
  join.set_address("127.0.0.1");
  join.set_mode(options.mode);
  if (options.public_keys) {
    join.set_public_key(std::string(32, static_cast<char>('a' + peer)));
  }
  return join;
}

// Holds the whole against what everybody relies on.
class Job {
 public:
  explicit Job(const MembershipOptions& options)
      : options_(options), membership_(options) {}

  bool over() const { return membership_.over(); }

  void Pass(absl::Duration time) {
    now_ += time;
    Take(membership_.OnTick(now_));
  }
  void End() { Take(membership_.OnCoordinatorGone("")); }
  void Say(int peer, const ControlMessage& message) {
    Take(membership_.OnMessage(now_, PeerOf(peer), message));
  }

  void CheckEnd() {
    if (!membership_.over()) return;
    Require(
        membership_.result().ok() || !membership_.result().message().empty(),
        "the end has a reason");
  }

 private:
  void Take(const std::vector<Membership::Outgoing>& all) {
    for (const Membership::Outgoing& one : all) Take(one);
    if (was_over_) {
      Require(membership_.over() && membership_.result() == result_,
              "what is over stays over, for the same reason");
    }
    was_over_ = membership_.over();
    result_ = membership_.result();
    CheckView();
  }

  // Whatever peers say, those who look at the job can read it.
  void CheckView() {
    proto::JobView view;
    Require(view.ParseFromString(membership_.View(now_).SerializeAsString()),
            "a view can be read");
    Require(view.processes_size() <= kPeers, "everybody once");
    Require(view.ByteSizeLong() < 64 << 10, "peers cannot make it large");
  }

  void Take(const Membership::Outgoing& one) {
    ControlMessage read;
    Require(read.ParseFromString(one.message->SerializeAsString()),
            "what is sent can be read");
    if (read.has_job_end()) {
      Require(ended_.insert(one.peer).second, "the end is told once");
    }
    if (read.has_welcome()) CheckWelcome(one.peer, read.welcome());
    if (read.has_seat()) CheckSeat(one.peer, read.seat().rank());
    if (read.has_refuse()) {
      Require(!read.refuse().reason().empty(), "a refusal says why");
    }
    if (read.has_gathered()) {
      const proto::Gathered& gathered = read.gathered();
      Require(gathered.missing().empty() != gathered.payloads().empty(),
              "who is missing, or what all have said");
      Require(gathered.payloads_size() <=
                  std::max(options_.num_workers, options_.num_servers),
              "at most everybody's part");
    }
  }

  void CheckWelcome(const std::string& peer, const proto::Welcome& welcome) {
    Require(welcome.workers_size() == options_.num_workers &&
                welcome.servers_size() == options_.num_servers,
            "the job is complete");
    for (int i = 0; i < welcome.workers_size(); ++i) {
      Require(welcome.workers(i).rank() == i, "workers come by rank");
    }
    welcomed_.insert(peer);
  }

  void CheckSeat(const std::string& peer, int rank) {
    Require(welcomed_.contains(peer), "the welcome comes first");
    Require(rank >= 0 &&
                rank < std::max(options_.num_workers, options_.num_servers),
            "ranks are within the job");
    Require(seated_.insert(peer).second, "one seat for everybody");
  }

  const MembershipOptions options_;
  Time now_ = Time::FromNanos(1'000'000'000);
  Membership membership_;
  bool was_over_ = false;
  absl::Status result_;
  std::set<std::string> ended_, welcomed_, seated_;
};

// Up to a quarter of a mebibyte of letters of one to four bytes, which a limit
// of bytes may cut anywhere.
std::string LongText(Bytes& input) {
  static constexpr const char* kLetters[] = {"x", "\u00e9", "\u2026",
                                             "\U0001f600"};
  const std::string letter = kLetters[input.Below(4)];
  std::string text(static_cast<size_t>(input.Below(4)), 'x');
  for (auto i = input.Number(2); i > 0; --i) text += letter;
  return text;
}

void Announce(Bytes& input, proto::Announce& announce) {
  announce.set_to(input.Flag() ? proto::PS : proto::WORKER);
  announce.set_name(input.Flag() ? "open model" : LongText(input));
  announce.set_payload(input.Text());
}

// A message that fits, or any bytes that are one. `unusual`: with long texts,
// and of many names.
bool MessageOf(Bytes& input, const MembershipOptions& options, int peer,
               ControlMessage& message) {
  const int kind = input.Byte();
  const bool unusual = kind / 6 % 2 != 0;
  switch (kind % 6) {
    case 0:
      if (unusual) {
        Announce(input, *message.mutable_announce());
      } else {
        *message.mutable_join() = JoinOf(options, peer);
      }
      break;
    case 1: {
      proto::Join join = JoinOf(options, peer);
      if (!join.MergeFromString(input.Text())) return false;
      if (unusual) join.set_failure(LongText(input));
      *message.mutable_join() = std::move(join);
      break;
    }
    case 2:
      message.mutable_heartbeat()->set_step(input.Integer());
      message.mutable_heartbeat()->set_still_ms(input.Integer());
      if (input.Flag()) {
        message.mutable_heartbeat()->set_doing(unusual ? LongText(input)
                                                       : "computing");
      }
      message.mutable_heartbeat()->mutable_figures()->set_samples(
          input.Integer());
      message.mutable_heartbeat()->set_waiting_ms(input.Integer());
      if (input.Flag()) {
        message.mutable_heartbeat()->set_waits_at(unusual ? LongText(input)
                                                          : "a step");
      }
      break;
    case 3:
      message.mutable_gather()->set_name(
          absl::StrCat(unusual ? input.Below(200) : input.Below(3)));
      message.mutable_gather()->set_payload("mine");
      message.mutable_gather()->set_repeat(input.Flag());
      for (int i = input.Below(3); i > 0; --i) {
        message.mutable_gather()->add_among(input.Below(4) - 1);
      }
      break;
    case 4:
      message.mutable_leave()->set_error(unusual        ? LongText(input)
                                         : input.Flag() ? "it failed"
                                                        : "");
      message.mutable_leave()->set_timed_out(input.Flag());
      break;
    default:
      return message.ParseFromString(input.Text());
  }
  return true;
}

void AddJoins(const MembershipOptions& options, Input& input) {
  for (int peer = 0; peer < options.num_servers + options.num_workers; ++peer) {
    input.Byte(peer).Byte(0);
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (int shape = 0; shape < 12; ++shape) {
    const MembershipOptions options = OptionsOf(shape);
    Input input;
    input.Byte(shape);
    AddJoins(options, input);
    input.Byte(0).Byte(2).Integer(5).Integer(0).Byte(1);
    for (int peer = 0; peer < 4; ++peer) {
      input.Byte(peer).Byte(3).Byte(1).Byte(0);
    }
    input.Byte(kPeers).Number(120, 2);
    input.Byte(1).Byte(4).Byte(0).Byte(0);
    input.Byte(kPeers).Number(9000, 2);
    seeds.push_back(input.bytes());
  }
  proto::Join join;
  join.set_wanted_rank(1);
  join.set_failure("out of memory");
  join.set_progress_timeout_ms(2000);
  ControlMessage announce;
  announce.mutable_announce()->set_to(proto::PS);
  announce.mutable_announce()->set_name("open model");
  Input input;
  input.Byte(2).Byte(1).Byte(1).Text(join.SerializeAsString());
  AddJoins(OptionsOf(2), input);
  input.Byte(1).Byte(5).Text(announce.SerializeAsString());
  input.Byte(kPeers + 1);
  seeds.push_back(input.bytes());
  Input many;
  many.Byte(4);
  AddJoins(OptionsOf(4), many);
  for (int name = 0; name < 100; ++name) {
    many.Byte(1).Byte(9).Byte(name).Byte(0).Byte(0);
  }
  seeds.push_back(many.bytes());
  for (int letter = 0; letter < 4; ++letter) {
    Input lengthy;
    lengthy.Byte(4);
    AddJoins(OptionsOf(4), lengthy);
    const auto add = [&](const Input& before) {
      lengthy.Rest(before.bytes()).Byte(letter).Byte(1).Number(65000, 2);
    };
    add(Input().Byte(1).Byte(6).Byte(1).Byte(0));
    lengthy.Text("payload");
    add(Input().Byte(2).Byte(8).Integer(5).Integer(0).Byte(1));
    lengthy.Integer(1).Integer(0).Byte(0);
    add(Input().Byte(1).Byte(10));
    lengthy.Byte(0);
    seeds.push_back(lengthy.bytes());
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const MembershipOptions options = fuzz::OptionsOf(input.Below(12));
  fuzz::Job job(options);
  while (!input.empty()) {
    const int who = input.Below(fuzz::kPeers + 2);
    if (who == fuzz::kPeers) {
      job.Pass(absl::Milliseconds(static_cast<int64_t>(input.Number(2))));
    } else if (who == fuzz::kPeers + 1) {
      job.End();
    } else {
      proto::ControlMessage message;
      if (fuzz::MessageOf(input, options, who, message)) job.Say(who, message);
    }
  }
  job.CheckEnd();
  return 0;
}
