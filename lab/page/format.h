// Numbers as people read them.
#ifndef PSRING_LAB_PAGE_FORMAT_H_
#define PSRING_LAB_PAGE_FORMAT_H_

#include <string>

namespace psring {

// "12,345", "1.5 KiB", "97.10%".
std::string FormatCount(double number);
std::string FormatBytes(double bytes);
std::string FormatPercent(double fraction);

// In three digits below a minute: "215 ms", "3.14 s", "31.4 s", "2:05 min".
std::string FormatSeconds(double seconds);

// "3:20", "1:03:20".
std::string FormatClock(double seconds);

// "1.3": a ratio, with as many digits as mean something.
std::string FormatTimes(double ratio);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_FORMAT_H_
