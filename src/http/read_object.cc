#include "http/read_object.h"

#include <algorithm>
#include <utility>

#include "base/rfc3339.h"

namespace faultline::http {
namespace {

/// One of the words of an enumeration.
template <class T>
bool read_word(Json value, T& into, Refusal& refusal, std::optional<T> (*parse)(std::string_view),
               std::string_view words) {
  const auto parsed = value.is_string() ? parse(value.string()) : std::nullopt;
  if (!parsed) return refusal.at("one of " + std::string{words} + " is expected");
  into = *parsed;
  return true;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

bool read(Json value, std::string& into, Refusal& refusal) {
  if (!value.is_string()) return refusal.at("a string is expected");
  into = value.string();
  return true;
}

bool read(Json value, bool& into, Refusal& refusal) {
  const auto parsed = value.boolean();
  if (!parsed) return refusal.at("true or false is expected");
  into = *parsed;
  return true;
}

bool read(Json value, std::int64_t& into, Refusal& refusal) {
  const auto parsed = value.integer();
  if (!parsed) return refusal.at("a whole number of at most 64 bits is expected");
  into = *parsed;
  return true;
}

bool read(Json value, double& into, Refusal& refusal) {
  const auto parsed = value.number();
  if (!parsed) return refusal.at("a number is expected");
  into = *parsed;
  return true;
}

bool read(Json value, std::chrono::milliseconds& into, Refusal& refusal) {
  // A limit for the arithmetic; each duration has bounds of its own.
  constexpr std::int64_t kCountMax = 1'000'000'000'000'000;
  std::int64_t count = 0;
  if (!read(value, count, refusal)) return false;
  if (count > kCountMax || count < -kCountMax) return refusal.at("the duration is out of bounds");
  into = std::chrono::milliseconds{count};
  return true;
}

bool read(Json value, DatabaseTime& into, Refusal& refusal) {
  const auto parsed = value.is_string() ? parse_rfc3339(value.string()) : std::nullopt;
  if (!parsed) return refusal.at("a time as in RFC 3339 is expected, such as 2030-01-31T12:00:00Z");
  into = *parsed;
  return true;
}

bool read(Json value, Uuid& into, Refusal& refusal) {
  const auto parsed = value.is_string() ? Uuid::parse(value.string()) : std::nullopt;
  if (!parsed) return refusal.at("a UUID is expected");
  into = *parsed;
  return true;
}

bool read(Json value, JobId& into, Refusal& refusal) { return read(value, into.value, refusal); }
bool read(Json value, FenceToken& into, Refusal& refusal) { return read(value, into.value, refusal); }

bool read(Json value, Delivery& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_delivery, "at_least_once, at_most_once, hold");
}

bool read(Json value, JobState& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_job_state,
                   "scheduled, available, running, held, dead, succeeded, cancelled");
}

bool read(Json value, Outcome::Kind& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_outcome,
                   "succeeded, failed, buried, snoozed, released, cancelled");
}

bool read(Json value, Lease& into, Refusal& refusal) {
  static constexpr Field<Lease> kFields[] = {
      member<&Lease::job>("job_id", true),
      member<&Lease::token>("token", true),
      member<&Lease::lease_id>("lease_id", true),
      member<&Lease::worker>("worker", true),
  };
  return read_object(value, into, kFields, refusal);
}

std::string nearest_name(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kNameMax = 64;  // nothing known is as long, and the distance takes time
  if (name.size() > kNameMax) return {};
  std::string best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string unknown_field(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kShown = 64;
  std::string text = "there is no field \"" + std::string{name.substr(0, kShown)} + "\"";
  if (const std::string nearest = nearest_name(name, known); !nearest.empty()) {
    return text + "; did you mean \"" + nearest + "\"?";
  }
  text += "; there are";
  for (const std::string_view candidate : known)
    text += (candidate == known.front() ? " " : ", ") + std::string{candidate};
  return text;
}

}  // namespace faultline::http
