#include "common/page/job_page.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection to a page.
class Reader {
 public:
  explicit Reader(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  ~Reader() { close(fd_); }
  Reader(const Reader&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // What comes until `text` has, or the end of the connection.
  std::string ReadUntil(const std::string& text, Time deadline) {
    while (text.empty() || !absl::StrContains(all_, text)) {
      pollfd event = {fd_, POLLIN, 0};
      const int left =
          static_cast<int>(absl::ToInt64Milliseconds(deadline - Now()));
      if (left <= 0 || poll(&event, 1, left) != 1) return all_ + "[no more]";
      char bytes[65536];
      const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
      if (size <= 0) return all_;
      all_.append(bytes, size);
    }
    return all_;
  }

 private:
  const int fd_;
  bool connected_ = false;
  std::string all_;
};

struct Page {
  explicit Page(const std::string& token_file = "") {
    auto started = JobPage::Start("127.0.0.1:0", token_file);
    EXPECT_TRUE(started.ok()) << started.status();
    page = *std::move(started);
    const std::vector<std::string> parts =
        absl::StrSplit(page->url(), absl::ByAnyChar(":/="));
    port = std::stoi(parts[4]);
    token = parts.back();
  }

  std::string Get(const std::string& target, const std::string& headers = "") {
    Reader reader(port);
    reader.Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x\r\n",
                             headers, "\r\n"));
    return reader.ReadUntil("", Soon());
  }
  std::string GetShown(const std::string& path) {
    return Get(absl::StrCat(path, "?token=", token));
  }
  void Show(int64_t step) {
    proto::JobView view;
    view.set_state(proto::JobView::RUNNING);
    view.set_num_workers(1);
    view.set_mode(proto::RING);
    proto::ProcessView& process = *view.add_processes();
    process.mutable_process()->set_role(proto::WORKER);
    process.mutable_process()->set_host("host\"\\");
    process.set_step(step);
    page->Show(Now(), view);
  }

  std::unique_ptr<JobPage> page;
  int port = 0;
  std::string token;
};

TEST(JobPage, NothingIsShownWithoutTheToken) {
  Page page;
  page.Show(5);
  std::string other = page.token;
  other.back() = other.back() == '0' ? '1' : '0';
  for (const std::string path : {"/", "/state", "/events", "/metrics", "/x"}) {
    EXPECT_THAT(page.Get(path),
                AllOf(StartsWith("HTTP/1.1 401"), Not(HasSubstr("psring_"))));
    EXPECT_THAT(page.Get(absl::StrCat(path, "?token=", other)),
                StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(page.Get(path, "Authorization: Bearer nonsense\r\n"),
                StartsWith("HTTP/1.1 403"));
  }
  EXPECT_THAT(page.Get(absl::StrCat("/state?token=", page.token, "0")),
              StartsWith("HTTP/1.1 403"));
  for (const char* scheme : {"Bearer ", "bearer "}) {
    EXPECT_THAT(page.Get("/state", absl::StrCat("Authorization: ", scheme,
                                                page.token, "\r\n")),
                AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\"step\":5")));
  }
}

TEST(JobPage, ServesThePageItsDataAndMetrics) {
  Page page;
  page.Show(5);
  EXPECT_THAT(page.GetShown("/"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/html"),
                    HasSubstr("Content-Security-Policy: default-src 'none'"),
                    HasSubstr("Where a step"), HasSubstr("</html>"),
                    Not(HasSubstr("{{"))));
  EXPECT_THAT(page.GetShown("/metrics"),
              AllOf(HasSubstr("text/plain; version=0.0.4"),
                    HasSubstr("psring_step{role=\"worker\",rank=\"0\"} 5\n"),
                    HasSubstr("host=\"host\\\"\\\\\"")));
  EXPECT_THAT(page.GetShown("/../etc/passwd"), StartsWith("HTTP/1.1 404"));
}

TEST(JobPage, EventsFollowTheJobToItsEnd) {
  Page page;
  page.Show(5);
  Reader reader(page.port);
  reader.Send(absl::StrCat("GET /events?token=", page.token,
                           " HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(reader.ReadUntil("\"step\":5", Soon()),
              HasSubstr("text/event-stream"));
  page.Show(6);
  EXPECT_THAT(reader.ReadUntil("\"step\":6", Soon()), HasSubstr("\"step\":6"));
  page.page.reset();
  EXPECT_THAT(reader.ReadUntil("", Soon()), HasSubstr("event: end"));
}

TEST(JobPage, JobsThatFollowEachOtherHaveTitlesAndLeaveTheirCurves) {
  Page page;
  EXPECT_THAT(page.GetShown("/state"), Not(HasSubstr("series")));
  page.page->BeginJob("run 1 of 2: ring");
  page.Show(5);
  Reader reader(page.port);
  reader.Send(absl::StrCat("GET /events?token=", page.token,
                           " HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(
      reader.ReadUntil("\"step\":5", Soon()),
      HasSubstr("\"series\":{\"job\":1,\"title\":\"run 1 of 2: ring\"}"));
  page.page->Keep({"ring", {{1, 0.5}, {2, 0.25}}, {{2, 0.9}}, {{2, 1.5}}});
  page.page->BeginJob("run 2 of 2: ps");
  const std::string earlier =
      "{\"accuracies\":[[2.0,0.9]],\"losses\":[[1.0,0.5],[2.0,0.25]],"
      "\"name\":\"ring\",\"test_losses\":[[2.0,1.5]]}";
  // Without a look at the second job.
  EXPECT_THAT(reader.ReadUntil("run 2 of 2", Soon()), HasSubstr(earlier));
  page.Show(7);
  EXPECT_THAT(reader.ReadUntil("\"step\":7", Soon()),
              HasSubstr("\"series\":{\"job\":2,\"title\":\"run 2 of 2: ps\"}"));
  EXPECT_THAT(page.GetShown("/state"),
              AllOf(HasSubstr(earlier), HasSubstr("\"step\":7"),
                    HasSubstr("\"first_point\":0")));
}

// Nobody keeps the coordinator waiting, or the page from ending.
TEST(JobPage, ReadersThatSayOrReadNothingHoldNothingUp) {
  Page page;
  page.Show(1);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 60; ++i) {
    readers.push_back(std::make_unique<Reader>(page.port));
    if (i % 3 == 0 || !readers.back()->connected()) continue;
    // Of these, some ask for streams and read none of it.
    readers.back()->Send(i % 3 == 1
                             ? "GET /eve"
                             : absl::StrCat("GET /events?token=", page.token,
                                            " HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  const Time begin = Now();
  for (int i = 0; i < 1000; ++i) page.Show(i);
  EXPECT_LT(Now() - begin, absl::Seconds(10));
  page.page.reset();
  EXPECT_LT(Now() - begin, absl::Seconds(30));
}

TEST(JobPage, RefusesWhatIsNoRequest) {
  Page page;
  page.Show(1);
  const std::string shown = absl::StrCat("?token=", page.token);
  for (const std::string& text :
       {absl::StrCat("POST /", shown,
                     " HTTP/1.1\r\nHost: x\r\n"
                     "Content-Length: 0\r\n\r\n"),
        absl::StrCat("OPTIONS /", shown,
                     " HTTP/1.1\r\nHost: x\r\nOrigin: y\r\n"
                     "Access-Control-Request-Method: GET\r\n\r\n"),
        absl::StrCat("GET /", std::string(20000, 'x'), " HTTP/1.1\r\n\r\n"),
        std::string("\x16\x03\x01 nonsense\r\n\r\n")}) {
    Reader reader(page.port);
    reader.Send(text);
    EXPECT_THAT(reader.ReadUntil("", Soon()), Not(HasSubstr(" 200 ")))
        << text.substr(0, 40);
  }
  EXPECT_THAT(page.GetShown("/state"), StartsWith("HTTP/1.1 200"));
}

TEST(JobPage, ATakenPortIsAnErrorThatNamesIt) {
  Page page;
  const std::string address = absl::StrCat("127.0.0.1:", page.port);
  const auto second = JobPage::Start(address, "");
  EXPECT_THAT(
      std::string(second.status().message()),
      AllOf(HasSubstr(absl::StrCat("--page: cannot listen on ", address)),
            HasSubstr("in use")));
  EXPECT_THAT(std::string(JobPage::Start("nonsense", "").status().message()),
              StartsWith("--page: "));
  EXPECT_EQ(JobPage::Start("[::1]:0", "").status().message(),
            "--page: cannot listen on ::1, only on IPv4 addresses. Give "
            "another address, or --page alone");
}

TEST(JobPage, TheProcessKeepsItsSignals) {
  signal(SIGPIPE, SIG_DFL);
  const Page page;
  EXPECT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
}

TEST(JobPage, ATokenFileIsMadeOnceAndThenKept) {
  const std::string folder = absl::StrCat(testing::TestDirectory(), "/a/b");
  const std::string file = absl::StrCat(folder, "/token");
  const Page first(file);
  struct stat about = {};
  ASSERT_EQ(stat(folder.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const Page second(file);
  EXPECT_EQ(first.token, second.token);
  const Page other;
  EXPECT_NE(other.token, first.token);

  chmod(file.c_str(), 0644);
  EXPECT_THAT(
      std::string(JobPage::Start("127.0.0.1:0", file).status().message()),
      HasSubstr("chmod 600"));
  chmod(file.c_str(), 0600);
  // Of the last, a part would be one.
  for (const std::string& text :
       {std::string("short\n"), std::string(115, ' ') + first.token}) {
    std::ofstream(file) << text;
    EXPECT_THAT(
        std::string(JobPage::Start("127.0.0.1:0", file).status().message()),
        AllOf(StartsWith("--page-token-file"), HasSubstr("holds no token")));
  }
}

}  // namespace
}  // namespace psring
