#include "ps/update_log.h"

#include <string.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cluster/spec_difference.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using proto::UpdateLogHeader;

constexpr char kMagic[] = "psringU2";
constexpr size_t kMagicBytes = 8;
constexpr uint32_t kEnd = 0xffffffff;
constexpr uint32_t kMaxHeaderBytes = 1u << 28;

struct Entry {
  uint32_t piece;
  uint32_t worker;  // of the end: the checksum
  int64_t step;     // of the end: the number of entries
};
static_assert(sizeof(Entry) == 16);

std::string PathOf(const std::string& directory, int shard) {
  return absl::StrCat(directory, absl::StrFormat("/shard-%04d.updates", shard));
}

uint32_t Crc(uint32_t crc, const Entry& entry) {
  return static_cast<uint32_t>(
      crc32(crc, reinterpret_cast<const Bytef*>(&entry), sizeof(entry)));
}

// How many bytes follow in it.
uint64_t BytesLeft(std::ifstream& file) {
  const std::streampos here = file.tellg();
  const std::streampos end = file.seekg(0, std::ios::end).tellg();
  file.seekg(here);
  return static_cast<uint64_t>(end - here);
}

// Leaves `file` at the first entry.
absl::StatusOr<UpdateLogHeader> ReadHeader(std::ifstream& file,
                                           const std::string& path) {
  char magic[kMagicBytes] = {};
  uint32_t size = 0;
  file.read(magic, sizeof(magic));
  file.read(reinterpret_cast<char*>(&size), sizeof(size));
  if (!file || std::memcmp(magic, kMagic, kMagicBytes) != 0 ||
      size > kMaxHeaderBytes) {
    return absl::DataLossError(absl::StrCat(
        "--replay: ", path, " is not a recording by this version of psring"));
  }
  // What the file promises is not given memory before it is there.
  std::string bytes(std::min<uint64_t>(size, BytesLeft(file)), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  UpdateLogHeader header;
  if (!file || bytes.size() < size || !header.ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat("--replay: ", path, " is cut within its first bytes"));
  }
  return header;
}

absl::Status CheckHeader(const std::string& path, const UpdateLogHeader& here,
                         const UpdateLogHeader& recorded) {
  const auto differs = [&](const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat("--replay: ", path, " was recorded by another job; ", what,
                     " that was recorded"));
  };
  const auto count = [&](const char* what, int now, int then) {
    return absl::StrCat(what, ": ", now, " here, ", then, " in the job");
  };
  if (here.num_workers() != recorded.num_workers()) {
    return differs(
        count("--workers", here.num_workers(), recorded.num_workers()));
  }
  if (here.num_servers() != recorded.num_servers()) {
    return differs(
        count("--servers", here.num_servers(), recorded.num_servers()));
  }
  if (here.num_shards() != recorded.num_shards()) {
    return differs(count("--shard-threads of all servers", here.num_shards(),
                         recorded.num_shards()));
  }
  if (const auto d = SpecDifference(here.spec(), recorded.spec())) {
    return differs(*d);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<UpdateTurn>>> ReadEntries(
    std::ifstream& file, const std::string& path, int num_pieces,
    int num_workers) {
  std::vector<std::vector<UpdateTurn>> turns(num_pieces);
  uint32_t crc = 0;
  int64_t count = 0;
  Entry entry;
  while (file.read(reinterpret_cast<char*>(&entry), sizeof(entry))) {
    if (entry.piece == kEnd) {
      if (entry.worker == crc && entry.step == count) return turns;
      break;
    }
    if (entry.piece >= static_cast<uint32_t>(num_pieces) ||
        entry.worker >= static_cast<uint32_t>(num_workers)) {
      break;
    }
    crc = Crc(crc, entry);
    ++count;
    turns[entry.piece].push_back({static_cast<int>(entry.worker), entry.step});
  }
  return absl::DataLossError(absl::StrCat(
      "--replay: ", path, file ? " is damaged after " : " is cut after ", count,
      " updates: the run that recorded it was stopped, or the file is not "
      "whole. Record again"));
}

}  // namespace

UpdateLogHeader UpdateLogHeaderOf(const proto::Welcome& job, int shard) {
  UpdateLogHeader header;
  *header.mutable_spec() = job.spec();
  header.mutable_spec()->clear_record_dir();
  header.mutable_spec()->clear_replay_dir();
  header.set_num_workers(job.workers_size());
  header.set_num_servers(job.servers_size());
  int shards = 0;
  for (const proto::Process& server : job.servers()) {
    shards += server.endpoints_size();
  }
  header.set_num_shards(shards);
  header.set_shard(shard);
  return header;
}

absl::StatusOr<UpdateLogWriter> UpdateLogWriter::Create(
    const std::string& directory, const UpdateLogHeader& header) {
  UpdateLogWriter writer;
  writer.path_ = PathOf(directory, header.shard());
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("--record: cannot make ", directory, ": ", error.message(),
                     ". Choose another folder"));
  }
  if (fs::exists(writer.path_, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--record: ", writer.path_,
                     " holds an earlier recording. Choose another folder"));
  }
  writer.file_.open(writer.path_, std::ios::binary);
  const std::string bytes = header.SerializeAsString();
  const uint32_t size = static_cast<uint32_t>(bytes.size());
  writer.file_.write(kMagic, kMagicBytes);
  writer.file_.write(reinterpret_cast<const char*>(&size), sizeof(size));
  writer.file_ << bytes << std::flush;
  if (absl::Status s = writer.Written(); !s.ok()) return s;
  return writer;
}

absl::Status UpdateLogWriter::Append(int piece, UpdateTurn turn) {
  const Entry entry = {static_cast<uint32_t>(piece),
                       static_cast<uint32_t>(turn.worker), turn.step};
  crc_ = Crc(crc_, entry);
  ++count_;
  file_.write(reinterpret_cast<const char*>(&entry), sizeof(entry));
  return Written();
}

absl::Status UpdateLogWriter::Finish() {
  const Entry end = {kEnd, crc_, count_};
  file_.write(reinterpret_cast<const char*>(&end), sizeof(end));
  file_.close();
  return Written();
}

absl::Status UpdateLogWriter::Written() const {
  if (file_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("--record: cannot write ", path_, ": ", strerror(errno)));
}

absl::StatusOr<std::vector<std::vector<UpdateTurn>>> ReadUpdateLog(
    const std::string& directory, const UpdateLogHeader& expected,
    int num_pieces) {
  std::string path = PathOf(directory, expected.shard());
  std::ifstream file(path, std::ios::binary);
  const bool found = file.is_open();
  if (!found) {  // the first one tells what was recorded
    path = PathOf(directory, 0);
    file.open(path, std::ios::binary);
  }
  if (!file.is_open()) {
    return absl::NotFoundError(absl::StrCat(
        "--replay: no ", PathOf(directory, expected.shard()), ": ",
        strerror(errno),
        ". Every server reads what the one of its rank has recorded"));
  }
  auto header = ReadHeader(file, path);
  if (!header.ok()) return header.status();
  if (absl::Status s = CheckHeader(path, expected, *header); !s.ok()) return s;
  if (!found || header->shard() != expected.shard()) {
    return absl::NotFoundError(absl::StrCat("--replay: no recording of shard ",
                                            expected.shard(), " in ",
                                            directory));
  }
  return ReadEntries(file, path, num_pieces, expected.num_workers());
}

}  // namespace psring
