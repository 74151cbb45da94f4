#include "faultline/time.h"

#include <cstdio>
#include <ostream>

namespace faultline {

std::string to_string(DatabaseTime time) {
  if (time == DatabaseTime::max()) return "infinity";
  if (time == DatabaseTime::min()) return "-infinity";
  const auto since_epoch = time.time_since_epoch();
  const auto day_start = std::chrono::floor<std::chrono::days>(since_epoch);
  const std::chrono::year_month_day date{std::chrono::sys_days{day_start}};
  const std::chrono::hh_mm_ss clock{since_epoch - day_start};
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text;
}

std::ostream& operator<<(std::ostream& out, DatabaseTime time) { return out << to_string(time); }

}  // namespace faultline
