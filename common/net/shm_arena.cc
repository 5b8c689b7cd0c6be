#include "common/net/shm_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/net/available_memory.h"

namespace psring {
namespace {

// What the header page begins with.
struct Header {
  char magic[16];
  uint64_t nonce;
};
constexpr char kMagic[16] = "psring arena 1";

// More than any host has.
constexpr int64_t kMaxBytes = int64_t{1} << 46;

// The seals of every arena; F_SEAL_SEAL keeps them.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int64_t MiB(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

constexpr char kSameHostOff[] = "--same-host=off (same_host=\"off\" in Python)";

absl::Status NoMemory(int64_t bytes, const std::string& why) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory of ", MiB(bytes), " MiB: ", why,
                   ". Free memory, use a smaller model, or ", kSameHostOff,
                   ", which takes ordinary memory"));
}

absl::Status NotHere(const proto::SharedMemory& address,
                     const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("process ", address.pid(), ": ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmArena>> ShmArena::Create(int64_t size_bytes) {
  return Create(size_bytes, size_bytes);
}

absl::StatusOr<std::unique_ptr<ShmArena>> ShmArena::Create(
    int64_t size_bytes, int64_t reserved_bytes) {
  if (size_bytes < 0 || size_bytes > kMaxBytes) {
    return NoMemory(size_bytes, "no arena is so large");
  }
  const int fd = memfd_create("psring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory: memfd_create: ", std::strerror(errno),
                     ". ", kSameHostOff, " does without"));
  }
  std::unique_ptr<ShmArena> arena(new ShmArena(fd));
  arena->address_.set_size_bytes(size_bytes);
  if (fchmod(fd, 0600) != 0 || ftruncate(fd, kHeaderBytes + size_bytes) != 0) {
    return NoMemory(size_bytes,
                    errno == EFBIG
                        ? "the limit of a file's size (ulimit -f) is smaller"
                        : std::strerror(errno));
  }
  if (absl::Status s = arena->Reserve(0, reserved_bytes); !s.ok()) return s;
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot seal shared memory: ", std::strerror(errno), ". ",
                     kSameHostOff, " does without"));
  }
  if (absl::Status s = arena->MapFile(); !s.ok()) return s;
  std::random_device random;
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.nonce = (static_cast<uint64_t>(random()) << 32) | random();
  std::memcpy(arena->base_, &header, sizeof(header));
  arena->address_.set_pid(getpid());
  arena->address_.set_fd(fd);
  arena->address_.set_nonce(header.nonce);
  return arena;
}

absl::Status ShmArena::Reserve(int64_t offset, int64_t size_bytes) {
  const bool first = offset == 0;  // with the header
  const off_t begin = first ? 0 : kHeaderBytes + offset;
  const off_t size = first ? kHeaderBytes + size_bytes : size_bytes;
  if (size == 0) return absl::OkStatus();
  // Of a file that takes more than the host or the container has, the kernel
  // kills whom it likes.
  if (const int64_t available = AvailableMemory(); size_bytes > available) {
    return NoMemory(size_bytes,
                    absl::StrCat(MiB(available), " MiB are available"));
  }
  int error = 0;  // its result: it leaves errno alone
  do {
    error = posix_fallocate(fd_, begin, size);
  } while (error == EINTR);
  return error == 0 ? absl::OkStatus()
                    : NoMemory(size_bytes, std::strerror(error));
}

// What is opened may be anything: another process can have that number here.
absl::StatusOr<std::unique_ptr<ShmArena>> ShmArena::Map(
    const proto::SharedMemory& address) {
  if (address.size_bytes() < 0 || address.size_bytes() > kMaxBytes) {
    return NotHere(address, "no arena has that size");
  }
  const std::string path =
      absl::StrCat("/proc/", address.pid(), "/fd/", address.fd());
  struct stat before;
  if (stat(path.c_str(), &before) != 0) {
    return NotHere(address, std::strerror(errno));
  }
  if (!S_ISREG(before.st_mode)) return NotHere(address, "it is not that file");
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NotHere(address, std::strerror(errno));
  std::unique_ptr<ShmArena> arena(new ShmArena(fd));
  arena->address_ = address;
  arena->address_.clear_doorbell_fds();
  struct stat file;
  // The kernel may have added seals of its own.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &file) != 0 ||
      file.st_size != kHeaderBytes + address.size_bytes()) {
    return NotHere(address, "it is not that memory");
  }
  if (absl::Status s = arena->MapFile(); !s.ok()) return s;
  Header header;
  std::memcpy(&header, arena->base_, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      header.nonce != address.nonce()) {
    return NotHere(address, "its memory holds another number");
  }
  close(std::exchange(arena->fd_, -1));
  return arena;
}

absl::Status ShmArena::MapFile() {
  void* memory = mmap(nullptr, kHeaderBytes + size_bytes(),
                      PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) {
    return NoMemory(size_bytes(), absl::StrCat("mmap: ", std::strerror(errno)));
  }
  base_ = static_cast<char*>(memory);
  return absl::OkStatus();
}

ShmArena::~ShmArena() {
  if (base_ != nullptr) munmap(base_, kHeaderBytes + size_bytes());
  if (fd_ >= 0) close(fd_);
}

}  // namespace psring
