#include "worker/data/gzip_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zlib.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace psring {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

absl::Status CheckIsFile(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
}

absl::Status TooLarge(const std::string& path, int64_t max_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      path, ": holds more than the ", max_bytes, " bytes allowed here"));
}

bool IsGzip(const std::string& bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

using Inflater = std::unique_ptr<z_stream, int (*)(z_stream*)>;

Inflater StartInflate(z_stream& stream, std::string& packed) {
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = packed.size();
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  return Inflater(inflateInit2(&stream, kGzipOnly) == Z_OK ? &stream : nullptr,
                  inflateEnd);
}

// gzread() would not notice a missing checksum at the end; inflate() does.
absl::StatusOr<std::string> Unpack(std::string packed, const std::string& path,
                                   int64_t max_bytes) {
  z_stream stream = {};
  const Inflater inflater = StartInflate(stream, packed);
  if (inflater == nullptr) return absl::InternalError("zlib does not start");
  std::string bytes, chunk(kChunkBytes, '\0');
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = kChunkBytes;
    code = inflate(&stream, Z_NO_FLUSH);
    bytes.append(chunk, 0, kChunkBytes - stream.avail_out);
    if (static_cast<int64_t>(bytes.size()) > max_bytes) {
      return TooLarge(path, max_bytes);
    }
    // A file may have several members, one after the other (RFC 1952).
    const bool has_more = code == Z_STREAM_END && stream.avail_in > 0;
    if (has_more) code = inflateReset(&stream);
  }
  if (code == Z_STREAM_END) return bytes;
  return absl::DataLossError(absl::StrCat(
      path, ": compressed data is cut short or damaged (",
      stream.msg != nullptr ? stream.msg : "unexpected end of file",
      "). Download the file again"));
}

}  // namespace

absl::StatusOr<std::string> ReadPlain(const std::string& path,
                                      int64_t max_bytes) {
  if (absl::Status status = CheckIsFile(path); !status.ok()) return status;
  std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rb"), fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  std::string bytes;
  for (size_t got = 1; got > 0;) {
    const size_t before = bytes.size();
    bytes.resize(before + kChunkBytes);
    got = fread(&bytes[before], 1, kChunkBytes, file.get());
    bytes.resize(before + got);
    if (static_cast<int64_t>(bytes.size()) > max_bytes) {
      return TooLarge(path, max_bytes);
    }
  }
  if (ferror(file.get())) return absl::ErrnoToStatus(errno, path);
  return bytes;
}

absl::StatusOr<FileContents> ReadPlainOrGzip(const std::string& path,
                                             int64_t max_bytes) {
  auto bytes = ReadPlain(path, max_bytes);
  if (bytes.ok() && IsGzip(*bytes)) {
    bytes = Unpack(*std::move(bytes), path, max_bytes);
  }
  if (!bytes.ok()) return bytes.status();
  return FileContents{path, *std::move(bytes)};
}

absl::StatusOr<FileContents> ReadFirstOf(
    const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0 || errno != ENOENT) {
      return ReadPlainOrGzip(path);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no data file: tried ", absl::StrJoin(paths, " and ")));
}

}  // namespace psring
