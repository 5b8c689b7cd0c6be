// ps/update_log.h: a recorded order of updates, damaged or made up.
#include <zlib.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps/update_log.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

constexpr int kPieces = 3;
constexpr int kWorkers = 4;
constexpr char kFile[] = "shard-0000.updates";

proto::UpdateLogHeader HeaderHere() {
  proto::Welcome job;
  for (int i = 0; i < kWorkers; ++i) job.add_workers();
  job.add_servers()->add_endpoints("one");
  job.mutable_spec()->set_seed(7);
  return UpdateLogHeaderOf(job, 0);
}

using Turns = std::vector<std::pair<int, UpdateTurn>>;

std::string Recorded(const Turns& turns) {
  std::filesystem::remove(absl::StrCat(ScratchFolder(), "/", kFile));
  auto writer = UpdateLogWriter::Create(ScratchFolder(), HeaderHere());
  Require(writer.ok(), "a log can be made");
  for (const auto& [piece, turn] : turns) {
    Require(writer->Append(piece, turn).ok(), "and filled");
  }
  Require(writer->Finish().ok(), "and ended");
  return ReadScratch(kFile);
}

void ReadAnything(const std::string& bytes) {
  WriteScratch(kFile, bytes);
  const auto turns = ReadUpdateLog(ScratchFolder(), HeaderHere(), kPieces);
  if (!turns.ok()) return RequireReason(turns.status());
  size_t count = 0;
  for (const auto& piece : *turns) {
    count += piece.size();
    for (const UpdateTurn& turn : piece) {
      Require(turn.worker >= 0 && turn.worker < kWorkers,
              "only the job's workers have turns");
    }
  }
  Require(count * 16 < bytes.size(), "a turn takes its bytes");
}

// Entries of any content behind a header that is right, with a right end.
std::string Sealed(const std::string& entries) {
  std::string bytes = Recorded({});
  bytes.resize(bytes.size() - 16);
  const std::string whole = entries.substr(0, entries.size() / 16 * 16);
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(whole.data()), whole.size());
  return Input()
      .Rest(bytes)
      .Rest(whole)
      .Number(0xffffffff, 4)
      .Number(crc, 4)
      .Number(whole.size() / 16, 8)
      .bytes();
}

void WriteAndRead(Bytes input) {
  Turns turns;
  std::vector<std::vector<UpdateTurn>> by_piece(kPieces);
  while (!input.empty() && turns.size() < 1000) {
    const int piece = input.Below(kPieces);
    const UpdateTurn turn = {input.Below(kWorkers), input.Integer()};
    turns.emplace_back(piece, turn);
    by_piece[static_cast<size_t>(piece)].push_back(turn);
  }
  Recorded(turns);
  const auto read = ReadUpdateLog(ScratchFolder(), HeaderHere(), kPieces);
  Require(read.ok() && *read == by_piece, "what is recorded is repeated");
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string log =
      Recorded({{0, {3, 0}}, {1, {2, 0}}, {0, {1, kPullTurn}}, {2, {3, 1}}});
  const size_t entries = 4 * 16;
  return {
      Input().Byte(0).Rest(log).bytes(),
      // 12 bytes that promise a header of 256 MB.
      Input().Byte(0).Rest("psringU1").Number(1u << 28, 4).bytes(),
      Input()
          .Byte(1)
          .Rest(log.substr(log.size() - entries - 16, entries))
          .bytes(),
      Input().Byte(2).Rest({"\0\1\24\1\2\25\2\3\26", 9}).bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0:
      psring::fuzz::ReadAnything(input.Rest());
      break;
    case 1:
      psring::fuzz::ReadAnything(psring::fuzz::Sealed(input.Rest()));
      break;
    default:
      psring::fuzz::WriteAndRead(input);
  }
  return 0;
}
