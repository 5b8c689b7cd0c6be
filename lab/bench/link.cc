#include "lab/bench/link.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "lab/bench/pattern.h"
#include "lab/bench/stopwatch.h"
#include "lab/bench/tcp_stream.h"
#include "lab/host/text_file.h"

namespace psring {
namespace {

// What a stream repeats: long enough that a system call costs little.
constexpr int64_t kChunkBytes = 256 * 1024;
// A small message.
constexpr int64_t kPingBytes = 1000;

std::string MakeChunk() {
  std::vector<float> values(kChunkBytes / sizeof(float));
  FillPattern(/*rank=*/0, /*iteration=*/0, 0, absl::MakeSpan(values));
  return std::string(reinterpret_cast<const char*>(values.data()), kChunkBytes);
}

struct Received {
  std::vector<double> round_trips;
  std::vector<double> seconds;
  std::vector<int64_t> bytes;
  int64_t total = 0;
};

absl::Status ReceiveAll(TcpStream& stream, absl::Span<char> bytes,
                        Time deadline) {
  while (!bytes.empty()) {
    auto size = stream.Receive(bytes, deadline);
    if (!size.ok()) return size.status();
    if (*size == 0) return absl::UnavailableError("the stream ended early");
    bytes.remove_prefix(static_cast<size_t>(*size));
  }
  return absl::OkStatus();
}

// What one end does with each: sends it and waits for it, or the other way
// round. The first ones, on a new connection, count as the others do.
absl::Status PingPong(TcpStream& stream, bool begins, int round_trips,
                      Time deadline, std::vector<double>* seconds) {
  std::string message(kPingBytes, 'p');
  for (int i = 0; i < round_trips; ++i) {
    const double start = MonotonicSeconds();
    absl::Status status;
    if (begins) status = stream.Send(message, deadline);
    status.Update(ReceiveAll(stream, absl::MakeSpan(message), deadline));
    if (!begins) status.Update(stream.Send(message, deadline));
    if (!status.ok()) return status;
    seconds->push_back(MonotonicSeconds() - start);
  }
  return absl::OkStatus();
}

// Until the receiver says that it has enough.
absl::StatusOr<int64_t> Send(const std::string& address, int port,
                             const LinkOptions& options, Time deadline) {
  auto stream = TcpStream::Connect(address, port, deadline);
  if (!stream.ok()) return stream.status();
  std::vector<double> mine;  // the receiver's, who writes them, are as good
  if (absl::Status s = PingPong(*stream, /*begins=*/true, options.round_trips,
                                deadline, &mine);
      !s.ok()) {
    return s;
  }
  const std::string chunk = MakeChunk();
  int64_t sent = 0;
  while (!stream->HasInput()) {
    if (absl::Status s = stream->Send(chunk, deadline); !s.ok()) return s;
    sent += kChunkBytes;
  }
  // To close a socket with unread input would reset the stream.
  std::vector<char> word(16);
  auto size = stream->Receive(absl::MakeSpan(word), deadline);
  if (!size.ok()) return size.status();
  return sent;
}

// Reads the warm-up and compares it.
absl::Status ReceiveWarmup(TcpStream& stream, const LinkOptions& options,
                           Time deadline, int64_t* total) {
  const std::string chunk = MakeChunk();
  std::vector<char> buffer(kChunkBytes);
  const Time end = Now() + options.warmup;
  while (Now() < end) {
    const int64_t offset = *total % kChunkBytes;
    auto size = stream.Receive(
        absl::MakeSpan(buffer).subspan(0, kChunkBytes - offset), deadline);
    if (!size.ok()) return size.status();
    if (*size == 0) return absl::UnavailableError("the stream ended early");
    if (chunk.compare(offset, *size, buffer.data(), *size) != 0) {
      return absl::DataLossError("the stream carries other bytes than sent");
    }
    *total += *size;
  }
  return absl::OkStatus();
}

absl::StatusOr<Received> Receive(TcpListener& listener,
                                 const LinkOptions& options, Time deadline) {
  auto stream = listener.Accept(deadline);
  if (!stream.ok()) return stream.status();
  Received received;
  if (absl::Status s = PingPong(*stream, /*begins=*/false, options.round_trips,
                                deadline, &received.round_trips);
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          ReceiveWarmup(*stream, options, deadline, &received.total);
      !s.ok()) {
    return s;
  }
  std::vector<char> buffer(kChunkBytes);
  const double window = absl::ToDoubleSeconds(options.window);
  double start = MonotonicSeconds();
  int64_t bytes = 0;
  bool enough = false;
  while (true) {
    auto size = stream->Receive(absl::MakeSpan(buffer), deadline);
    if (!size.ok()) return size.status();
    if (*size == 0) break;
    bytes += *size;
    received.total += *size;
    const double now = MonotonicSeconds();
    if (enough || now - start < window) continue;
    received.seconds.push_back(now - start);
    received.bytes.push_back(bytes);
    start = now;
    bytes = 0;
    enough = static_cast<int>(received.seconds.size()) == options.windows;
    if (!enough) continue;
    if (absl::Status s = stream->Send(".", deadline); !s.ok()) return s;
  }
  if (enough) return received;
  return absl::UnavailableError("the stream ended early");
}

absl::Status Write(const Received& received, int from, int to,
                   const std::string& directory) {
  const nlohmann::json measured = {{"from", from},
                                   {"to", to},
                                   {"round_trips", received.round_trips},
                                   {"seconds", received.seconds},
                                   {"bytes", received.bytes}};
  return WriteTextFile(absl::StrCat(directory, "/link-", from, ".json"),
                       measured.dump());
}

// Both ends agree on the number of bytes.
absl::Status CompareTotals(RankJob& job, int from, int64_t mine) {
  auto totals = job.member().Gather(absl::StrCat("total ", from),
                                    absl::StrCat(mine), job.Deadline());
  if (!totals.ok()) return totals.status();
  const int to = (from + 1) % job.num_ranks();
  if ((*totals)[from] == (*totals)[to]) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rank ", from, " sent ",
                                          (*totals)[from], " bytes, rank ", to,
                                          " received ", (*totals)[to]));
}

}  // namespace

absl::Status MeasureLinks(RankJob& job, const LinkOptions& options) {
  auto listener = TcpListener::Create();
  if (!listener.ok()) return listener.status();
  auto ports = job.member().Gather("ports", absl::StrCat(listener->port()),
                                   job.Deadline());
  if (!ports.ok()) return ports.status();
  for (int from = 0; from < job.num_ranks(); ++from) {
    const int to = (from + 1) % job.num_ranks();
    int64_t total = 0;
    if (job.rank() == from) {
      int port = 0;
      if (!absl::SimpleAtoi((*ports)[to], &port)) {
        return absl::InternalError(
            absl::StrCat("rank ", to, " listens on ", (*ports)[to]));
      }
      auto sent = Send(job.member().job().workers(to).address(), port, options,
                       job.Deadline());
      if (!sent.ok()) return sent.status();
      total = *sent;
    } else if (job.rank() == to) {
      auto received = Receive(*listener, options, job.Deadline());
      if (!received.ok()) return received.status();
      total = received->total;
      if (absl::Status s = Write(*received, from, to, options.out); !s.ok()) {
        return s;
      }
    }
    if (absl::Status s = CompareTotals(job, from, total); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace psring
