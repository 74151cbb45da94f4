#include "config/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/dsn.h"
#include "base/utf8.h"
#include "config/settings.h"

namespace faultline::config {
namespace {

using std::chrono::milliseconds;

template <class Number>
using Unit = std::pair<std::string_view, Number>;

constexpr std::array<Unit<std::uint64_t>, 5> kDurations{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr std::array<Unit<std::uint64_t>, 4> kSizes{
    {{"GiB", 1U << 30U}, {"MiB", 1U << 20U}, {"KiB", 1U << 10U}, {"", 1}}};

/// A whole number and the unit after it.
template <class Units>
std::optional<std::uint64_t> parse_with_unit(std::string_view text, const Units& units, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit{rest, static_cast<std::size_t>(text.data() + text.size() - rest)};
  const auto found = std::ranges::find(units, unit, [](const auto& known) { return known.first; });
  if (found == units.end() || number > most / found->second) return std::nullopt;
  return number * found->second;
}

template <class Units>
std::string write_with_unit(std::uint64_t value, const Units& units) {
  for (const auto& [unit, worth] : units) {
    if (value >= worth && value % worth == 0) return std::to_string(value / worth) + std::string{unit};
  }
  return {};
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  const auto value = parse_with_unit(text, kDurations, std::numeric_limits<milliseconds::rep>::max());
  if (!value) return std::nullopt;
  return milliseconds{static_cast<milliseconds::rep>(*value)};
}

std::optional<std::size_t> parse_size(std::string_view text) {
  return parse_with_unit(text, kSizes, std::numeric_limits<std::size_t>::max());
}

std::optional<std::size_t> parse_count(std::string_view text) {
  constexpr std::array<Unit<std::uint64_t>, 1> kNone{{{"", 1}}};
  return parse_with_unit(text, kNone, std::numeric_limits<std::size_t>::max());
}

std::string write_duration(milliseconds duration) {
  if (duration <= milliseconds{0}) return "0s";
  return write_with_unit(static_cast<std::uint64_t>(duration.count()), kDurations);
}

std::string write_size(std::size_t bytes) { return bytes == 0 ? "0" : write_with_unit(bytes, kSizes); }

std::string quoted(std::string_view value) {
  constexpr std::size_t kShown = 60;
  std::string text = without_passwords(value);
  if (text.size() > kShown) {
    text.resize(first_bytes(text, kShown).size());
    text += "…";
  }
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; }, ' ');
  return "\"" + text + "\"";
}

std::optional<double> parse_ratio(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string write_ratio(double ratio) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), ratio);
  return {text.data(), error == std::errc{} ? end : text.data()};
}

}  // namespace faultline::config
