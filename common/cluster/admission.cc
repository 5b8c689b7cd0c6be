#include "common/cluster/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/cluster/process_names.h"
#include "common/net/address.h"
#include "common/net/keys.h"
#include "common/printable.h"

namespace psring {
namespace {

// RFC 1035's names have 255 bytes.
constexpr size_t kMaxNameBytes = 255;

std::optional<std::string> KindObjection(const proto::Join& join) {
  if (join.protocol_version() != kProtocolVersion) {
    return absl::StrCat("protocol version: ", join.protocol_version(),
                        " here, ", kProtocolVersion,
                        " in the job. Run the same build of psring everywhere");
  }
  if (join.role() != proto::PS && join.role() != proto::WORKER) {
    return absl::StrCat("role ", join.role(), " is unknown");
  }
  return std::nullopt;
}

std::string OtherJob(absl::string_view what, absl::string_view here,
                     absl::string_view in_job) {
  return absl::StrCat(
      what, ": ", here, " here, ", in_job,
      " in the job. Start all processes of a job with the same ", what,
      "; if another job has this address, choose another port");
}

std::optional<std::string> SizeObjection(const proto::Join& join,
                                         const MembershipOptions& options) {
  if (join.mode() != options.mode) {
    return OtherJob("mode", NameOf(join.mode()), NameOf(options.mode));
  }
  if (join.num_servers() > 0 && join.num_servers() != options.num_servers) {
    return OtherJob("servers", absl::StrCat(join.num_servers()),
                    absl::StrCat(options.num_servers));
  }
  if (join.num_workers() > 0 && join.num_workers() != options.num_workers) {
    return OtherJob("workers", absl::StrCat(join.num_workers()),
                    absl::StrCat(options.num_workers));
  }
  return std::nullopt;
}

// Everybody is told of it, and people read it.
std::optional<std::string> NameObjection(const proto::Join& join) {
  const bool printable = Printable(join.host(), kMaxNameBytes) == join.host() &&
                         join.host().find('\n') == std::string::npos;
  if (printable) return std::nullopt;
  return absl::StrCat("the host's name, '", Printable(join.host(), 64),
                      "', is not one");
}

// For whoever starts a process anew at once.
constexpr char kOfTheDead[] =
    ". Where a process has died, the job ends within some seconds: start it "
    "again then";

std::optional<std::string> RankObjection(const proto::Join& join,
                                         const MembershipOptions& options,
                                         absl::Span<const Seated> seated) {
  const char* role = NameOf(join.role());
  const int promised = options.promised(join.role());
  const auto joined =
      std::count_if(seated.begin(), seated.end(), [&](const Seated& other) {
        return other.process->role() == join.role();
      });
  if (joined >= promised) {
    return absl::StrCat("the job takes ", promised, " ", role,
                        " processes, and all of them have joined", kOfTheDead);
  }
  if (join.wanted_rank() >= promised) {
    return absl::StrCat("rank ", join.wanted_rank(), ": the job takes ",
                        promised, " ", role, " processes, ranks 0 to ",
                        promised - 1);
  }
  for (const Seated& other : seated) {
    if (join.wanted_rank() >= 0 && other.process->role() == join.role() &&
        other.wanted_rank == join.wanted_rank()) {
      return absl::StrCat("rank ", join.wanted_rank(), " is taken by ",
                          Describe(*other.process),
                          ". Give every process a rank of its own (--rank; of "
                          "psring run --first-rank)",
                          kOfTheDead);
    }
  }
  return std::nullopt;
}

// A process that others cannot reach would hang them all.
std::optional<std::string> AddressObjection(const proto::Join& join,
                                            absl::Span<const Seated> seated) {
  if (!IsNumericAddress(join.address())) {
    return absl::StrCat("its address, '", Printable(join.address(), 64),
                        "', is not a numeric one");
  }
  if (seated.empty()) return std::nullopt;
  const bool loopback = IsLoopback(join.address());
  // All who have joined are alike.
  const proto::Process& other = *seated[0].process;
  if (IsLoopback(other.address()) == loopback) return std::nullopt;
  const std::string remedy =
      ". Give it an address that other hosts reach (advertise or "
      "interface), and a coordinator that is not loopback";
  return absl::StrCat(loopback ? "this process" : Describe(other),
                      " has a loopback address, but ",
                      loopback ? Describe(other) : "this process",
                      " has one that other hosts reach", remedy);
}

// Whoever could show another's key as its own would be let in as that one.
std::optional<std::string> KeyObjection(const proto::Join& join,
                                        const MembershipOptions& options,
                                        absl::Span<const Seated> seated) {
  const size_t expected = options.public_keys ? kKeyBytes : 0;
  if (join.public_key().size() != expected) {
    return absl::StrCat("a public key of ", join.public_key().size(),
                        " bytes here, of ", expected, " in the job");
  }
  if (expected == 0) return std::nullopt;
  for (const Seated& other : seated) {
    if (other.process->public_key() != join.public_key()) continue;
    return absl::StrCat("its public key is that of ", Describe(*other.process));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ObjectionTo(const proto::Join& join,
                                       const MembershipOptions& options,
                                       absl::Span<const Seated> seated) {
  if (auto objection = KindObjection(join)) return objection;
  for (auto& objection :
       {SizeObjection(join, options), NameObjection(join),
        AddressObjection(join, seated), RankObjection(join, options, seated),
        KeyObjection(join, options, seated)}) {
    if (objection) return objection;
  }
  return std::nullopt;
}

}  // namespace psring
