#include "python/capi/session_options.h"

#include <signal.h>

#include "common/cluster/model_parts.h"
#include "python/capi/json_options.h"

namespace psring {

absl::StatusOr<SessionOptions> ParseSessionOptions(const std::string& text) {
  auto options = JsonOptions::Parse("psring.init", text);
  if (!options.ok()) return options.status();
  SessionOptions session;
  std::string mode = "ring", same_host = "auto";
  double join_timeout = 60.0, step_timeout = 60.0, progress_timeout = 0.0;
  double heartbeat_timeout = absl::ToDoubleSeconds(session.heartbeat_timeout);
  ScriptWish& wish = session.wish;
  options->OneOf("mode", mode, {"ps", "ring"});
  options->Integer("servers", wish.num_servers, 1, 4096);
  options->Integer("servers_per_node", wish.servers_per_node, 0, 64);
  options->Integer("rank", wish.rank, 0, 4095);
  options->Integer("size", wish.size, 1, 4096);
  options->Text("coordinator", wish.coordinator);
  options->Flag("own_servers", session.own_servers);
  options->Integer("shard_threads", session.server.shard_threads, 0,
                   kMaxShardThreads);
  options->Text("advertise", session.advertise);
  options->Text("interface", session.interface);
  options->Text("ports", session.ports);
  options->OneOf("same_host", same_host, {"auto", "off"});
  options->Number("join_timeout_s", join_timeout, 1.0, 86400.0);
  options->Number("heartbeat_timeout_s", heartbeat_timeout, 2.0, 86400.0);
  options->Number("step_timeout_s", step_timeout, 1.0, 86400.0);
  options->Number("progress_timeout_s", progress_timeout, 0.0, 86400.0);
  options->Integer("hang_signal", session.hang_signal, 0, SIGRTMAX);
  options->Text("metrics_dir", session.metrics_dir);
  options->Text("tensorboard", session.tensorboard);
  options->Text("page", session.page);
  options->Text("page_token_file", session.page_token_file);
  options->OneOf("log_level", session.log_level,
                 {"debug", "info", "warn", "error"});
  if (absl::Status s = options->Finish(); !s.ok()) return s;
  wish.ring_mode = mode == "ring";
  session.same_host = same_host == "off" ? SameHost::kOff : SameHost::kAuto;
  session.join_timeout = absl::Seconds(join_timeout);
  session.heartbeat_timeout = absl::Seconds(heartbeat_timeout);
  session.step_timeout = absl::Seconds(step_timeout);
  session.progress_timeout = absl::Seconds(progress_timeout);
  session.server.same_host = session.same_host;
  session.server.step_timeout = session.step_timeout;
  session.server.metrics_dir = session.metrics_dir;
  session.server.tensorboard = session.tensorboard;
  return session;
}

}  // namespace psring
