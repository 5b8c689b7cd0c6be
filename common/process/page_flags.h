// The flags of the job's page, as every command that starts a job has them.
#ifndef PSRING_COMMON_PROCESS_PAGE_FLAGS_H_
#define PSRING_COMMON_PROCESS_PAGE_FLAGS_H_

namespace psring {

// Of --page without a value: this host alone, and a port that the system
// chooses.
inline constexpr char kDefaultPage[] = "127.0.0.1:0";

inline constexpr char kPageHelp[] =
    "Shows the running job as a web page, with metrics for Prometheus, on "
    "HOST:PORT of the process that runs the coordinator, which prints the "
    "address. Without a value: this host alone, at a port that the system "
    "chooses. Plain HTTP: see docs/monitoring.md";

inline constexpr char kPageTokenHelp[] =
    "File with the token that the page's readers must show, made where it is "
    "missing; default: a new token for every job, in the printed address";

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_PAGE_FLAGS_H_
