// collectives/mailbox.h: what a writer that is no writer leaves in memory, a
// reader that is no reader, and a real one's messages, whoever is called when.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "collectives/mailbox.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

// A mailbox begins with its writer's count, and 64 bytes on its reader's; its
// bytes follow a page later.
constexpr size_t kReadAt = 64;
constexpr size_t kRingAt = 4096;

std::unique_ptr<char, void (*)(void*)> Memory() {
  constexpr size_t kBytes = kRingAt + kMailboxBytes;
  void* const memory = std::aligned_alloc(kRingAt, kBytes);
  Require(memory != nullptr, "there is memory");
  std::memset(memory, 0, kBytes);
  return {static_cast<char*>(memory), std::free};
}

void ReadAnything(Bytes& input) {
  const auto memory = Memory();
  const uint64_t written = input.Number(8);
  const std::string bytes = input.Rest().substr(0, kMailboxBytes);
  std::memcpy(memory.get(), &written, sizeof(written));
  std::memcpy(memory.get() + kRingAt, bytes.data(), bytes.size());
  MailReader reader(memory.get());
  while (true) {
    const bool had_input = reader.HasInput();
    const auto mail = reader.Next();
    if (!mail.ok()) {
      RequireReason(mail.status());
      Require(!reader.Next().ok(), "what is no message stays none");
      return;
    }
    if (!mail->has_value()) return;
    Require(had_input, "a message is there before it is read");
  }
}

void WriteForAnything(Bytes& input) {
  const auto memory = Memory();
  MailWriter writer(memory.get());
  while (!input.empty()) {
    const uint64_t read = input.Number(8);
    std::memcpy(memory.get() + kReadAt, &read, sizeof(read));
    writer.Write(input.Text(), input.Text());
    writer.Flush();
  }
}

void Converse(Bytes& input) {
  const auto memory = Memory();
  MailWriter writer(memory.get());
  MailReader reader(memory.get());
  std::deque<std::pair<std::string, std::string>> on_the_way;
  const auto take = [&] {
    const auto mail = reader.Next();
    Require(mail.ok(), "a writer's messages are some");
    if (!mail->has_value()) return;
    Require(!on_the_way.empty(), "a message has been written");
    Require((*mail)->header.view() == on_the_way.front().first &&
                (*mail)->payload.view() == on_the_way.front().second,
            "messages come whole and in order");
    on_the_way.pop_front();
  };
  while (!input.empty()) {
    const int what = input.Below(4);
    if (what == 0) {
      // Some larger than the mailbox.
      const std::string payload(input.Number(2) * 3, input.Byte());
      on_the_way.emplace_back(input.Text(), payload);
      writer.Write(on_the_way.back().first, payload);
    } else if (what == 1) {
      writer.Flush();
    } else {
      take();
    }
  }
  for (int idle = 0; !on_the_way.empty();) {
    const size_t before = on_the_way.size();
    const bool flushed = writer.Flush();
    take();
    idle = flushed || on_the_way.size() < before ? 0 : idle + 1;
    Require(idle < 2, "nothing is lost");
  }
  Require(!writer.keeps_any() && !reader.HasInput(), "nothing is made up");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto memory = Memory();
  MailWriter writer(memory.get());
  writer.Write("header", "payload");
  writer.Write("header", "");
  uint64_t written = 0;
  std::memcpy(&written, memory.get(), sizeof(written));
  const std::string ring(memory.get() + kRingAt, written);
  for (const uint64_t count : {written, written - 1, uint64_t{1} << 40}) {
    seeds.push_back(Input().Byte(0).Number(count, 8).Rest(ring).bytes());
  }
  Input talk;
  talk.Byte(1);
  for (int i = 0; i < 40; ++i) {
    talk.Byte(0).Number(i * 1600, 2).Byte('a' + i).Text("header");
    talk.Byte(2).Byte(1);
  }
  seeds.push_back(talk.bytes());
  Input reads;
  reads.Byte(2);
  for (const uint64_t count : {uint64_t{0}, uint64_t{5}, ~uint64_t{0}}) {
    reads.Number(count, 8).Text("header").Text(std::string(40'000, 'p'));
  }
  seeds.push_back(reads.bytes());
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const int kind = input.Below(3);
  if (kind == 0) fuzz::ReadAnything(input);
  if (kind == 1) fuzz::Converse(input);
  if (kind == 2) fuzz::WriteForAnything(input);
  return 0;
}
