#include "base/rfc3339.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace faultline {
namespace {

using namespace std::chrono_literals;

/// Takes what it has read off the front of a text. After the first thing that is not there, nothing is.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  int digits(std::size_t count) {
    int value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_digit()) {
        good_ = false;
        return 0;
      }
      value = value * 10 + (rest_.front() - '0');
      rest_.remove_prefix(1);
    }
    return value;
  }
  /// The one of these characters that is next.
  char one_of(std::string_view any) {
    if (rest_.empty() || any.find(rest_.front()) == std::string_view::npos) {
      good_ = false;
      return '\0';
    }
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  std::chrono::microseconds fraction() {
    if (rest_.empty() || rest_.front() != '.') return 0us;
    rest_.remove_prefix(1);
    good_ = good_ && is_digit();
    std::chrono::microseconds value{};
    for (std::chrono::microseconds unit = 100'000us; is_digit(); unit /= 10) {
      value += unit * (rest_.front() - '0');
      rest_.remove_prefix(1);
    }
    return value;
  }
  [[nodiscard]] bool finished() const { return good_ && rest_.empty(); }

 private:
  [[nodiscard]] bool is_digit() const {
    return !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9';
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::optional<DatabaseTime> parse_rfc3339(std::string_view text) {
  Scanner in{text};
  const int year = in.digits(4);
  in.one_of("-");
  const int month = in.digits(2);
  in.one_of("-");
  const int day = in.digits(2);
  in.one_of("Tt ");
  const int hour = in.digits(2);
  in.one_of(":");
  const int minute = in.digits(2);
  in.one_of(":");
  const int second = in.digits(2);
  const auto fraction = in.fraction();
  const char sign = in.one_of("Zz+-");
  std::chrono::minutes offset{};
  if (sign == '+' || sign == '-') {
    const int hours = in.digits(2);
    in.one_of(":");
    const int minutes = in.digits(2);
    if (hours > 23 || minutes > 59) return std::nullopt;
    offset = (hours * 1h + minutes * 1min) * (sign == '-' ? -1 : 1);
  }
  const std::chrono::year_month_day date{std::chrono::year{year},
                                         std::chrono::month{static_cast<unsigned>(month)},
                                         std::chrono::day{static_cast<unsigned>(day)}};
  // 60 is a leap second.
  if (!in.finished() || !date.ok() || year < 1970 || hour > 23 || minute > 59 || second > 60)
    return std::nullopt;
  const auto days = std::chrono::sys_days{date}.time_since_epoch();
  return DatabaseTime{days + hour * 1h + minute * 1min + second * 1s + fraction - offset};
}

}  // namespace faultline
