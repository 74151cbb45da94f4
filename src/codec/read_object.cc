#include "codec/read_object.h"

#include <array>

#include "base/edit_distance.h"
#include "base/fields.h"
#include "base/rfc3339.h"
#include "base/words.h"

namespace faultline::codec {
namespace {

/// One of the words of an enumeration.
template <class T>
bool read_word(Json value, T& into, Refusal& refusal, std::optional<T> (*parse)(std::string_view)) {
  const auto parsed = value.is_string() ? parse(value.string()) : std::nullopt;
  if (!parsed) return refusal.at("one of " + list_of_words<T>() + " is expected");
  into = *parsed;
  return true;
}

bool read_base64(Json value, std::string& into, Refusal& refusal) {
  auto bytes = value.is_string() ? parse_base64(value.string()) : std::nullopt;
  if (!bytes) return refusal.at("a string of base64 (RFC 4648, with padding) is expected");
  into = std::move(*bytes);
  return true;
}

// From a field table to the members of an object.

template <class Struct, std::size_t I>
bool read_field(Json value, Struct& into, Refusal& refusal) {
  return read(value, std::get<I>(kFields<Struct>).of(into), refusal);
}

template <std::size_t I, class Struct>
bool read_payload(Json value, Struct& into, Refusal& /*refusal*/) {
  std::get<I>(kFields<Struct>).of(into) = value.raw();
  into.encoding = Encoding::json;
  return true;
}

template <std::size_t I, class Struct>
bool read_payload_base64(Json value, Struct& into, Refusal& refusal) {
  into.encoding = Encoding::bytes;
  return read_base64(value, std::get<I>(kFields<Struct>).of(into), refusal);
}

template <std::size_t I, class Struct>
bool read_cap(Json value, Struct& into, Refusal& refusal) {
  if (!value.is_null()) return read_field<Struct, I>(value, into, refusal);
  std::get<I>(kFields<Struct>).of(into) = -1;
  return true;
}

template <std::size_t I, class Struct>
void add_members(std::vector<Member<Struct>>& members) {
  constexpr auto field = std::get<I>(kFields<Struct>);
  if constexpr (field.form == Form::payload) {
    static const std::string base64_name = std::string{field.name} + "_base64";
    members.push_back({.name = field.name,
                       .read = &read_payload<I, Struct>,
                       .required = field.required,
                       .null_counts = true,
                       .instead_of = base64_name});
    members.push_back(
        {.name = base64_name, .read = &read_payload_base64<I, Struct>, .instead_of = field.name});
  } else if constexpr (field.form == Form::cap) {
    members.push_back({.name = field.name, .read = &read_cap<I, Struct>, .null_counts = true});
  } else if constexpr (field.form == Form::value) {
    members.push_back({.name = field.name, .read = &read_field<Struct, I>, .required = field.required});
  }
}

template <class Struct>
bool read_struct(Json value, Struct& into, Refusal& refusal) {
  static const std::vector<Member<Struct>> members = []<std::size_t... I>(std::index_sequence<I...>) {
    std::vector<Member<Struct>> all;
    (add_members<I>(all), ...);
    return all;
  }(std::make_index_sequence<kFieldCount<Struct>>{});
  return read_object(value, into, members, refusal);
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

bool read_call_id(Json value, Uuid& into, Refusal& refusal) {
  if (!read(value, into, refusal)) return false;
  return !into.is_nil() || refusal.at("it is nil; make a random one, or leave it out");
}

bool read(Json value, JobId& into, Refusal& refusal) { return read(value, into.value, refusal); }
bool read(Json value, FenceToken& into, Refusal& refusal) { return read(value, into.value, refusal); }
bool read(Json value, Delivery& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_delivery);
}
bool read(Json value, JobState& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_job_state);
}
bool read(Json value, Outcome::Kind& into, Refusal& refusal) {
  return read_word(value, into, refusal, &parse_outcome);
}

bool read(Json value, Lease& into, Refusal& refusal) { return read_struct(value, into, refusal); }
bool read(Json value, NewJob& into, Refusal& refusal) { return read_struct(value, into, refusal); }
bool read(Json value, QueueSettings& into, Refusal& refusal) { return read_struct(value, into, refusal); }

bool read(Json value, Settlement& into, Refusal& refusal) {
  static constexpr auto of = []<auto Pointer>() {
    return +[](Json v, Settlement& s, Refusal& r) { return read(v, s.outcome.*Pointer, r); };
  };
  static constexpr Member<Settlement> kMembers[] = {
      member<&Settlement::lease>("lease", true),
      {.name = "outcome", .read = of.operator()<&Outcome::kind>(), .required = true},
      {.name = "result",
       .read =
           [](Json v, Settlement& s, Refusal&) {
             s.outcome.result = v.raw();
             return true;
           },
       .null_counts = true,
       .instead_of = "result_base64"},
      {.name = "result_base64",
       .read = [](Json v, Settlement& s,
                  Refusal& r) { return read_base64(v, s.outcome.result.emplace(), r); },
       .instead_of = "result"},
      {.name = "error", .read = of.operator()<&Outcome::error>()},
      {.name = "delay_ms", .read = of.operator()<&Outcome::delay>()},
  };
  return read_object(value, into, kMembers, refusal);
}

bool read(Json value, ProgressReport& into, Refusal& refusal) {
  static constexpr Member<ProgressReport> kMembers[] = {
      member<&ProgressReport::lease>("lease", true),
      member<&ProgressReport::fraction>("fraction", true),
      member<&ProgressReport::note>("note"),
  };
  return read_object(value, into, kMembers, refusal);
}

bool read(Json value, EffectKey& into, Refusal& refusal) {
  static constexpr Member<EffectKey> kMembers[] = {
      member<&EffectKey::lease>("lease", true),
      member<&EffectKey::key>("key", true),
      {.name = "call_id",
       .read = [](Json v, EffectKey& key, Refusal& r) { return read_call_id(v, key.call, r); }},
  };
  return read_object(value, into, kMembers, refusal);
}

bool read(Json value, EffectResult& into, Refusal& refusal) {
  static constexpr Member<EffectResult> kMembers[] = {
      member<&EffectResult::lease>("lease", true),
      member<&EffectResult::key>("key", true),
      {.name = "result",
       .read =
           [](Json v, EffectResult& result, Refusal&) {
             result.result = v.raw();
             return true;
           },
       .null_counts = true,
       .instead_of = "result_base64"},
      {.name = "result_base64",
       .read = [](Json v, EffectResult& result, Refusal& r) { return read_base64(v, result.result, r); },
       .instead_of = "result"},
  };
  return read_object(value, into, kMembers, refusal);
}

bool read(Json value, EffectFinding& into, Refusal& refusal) {
  static constexpr Member<EffectFinding> kMembers[] = {
      member<&EffectFinding::key>("key", true),
      member<&EffectFinding::happened>("happened", true),
      {.name = "result",
       .read =
           [](Json v, EffectFinding& finding, Refusal&) {
             finding.result = v.raw();
             return true;
           },
       .null_counts = true,
       .instead_of = "result_base64"},
      {.name = "result_base64",
       .read = [](Json v, EffectFinding& finding, Refusal& r) { return read_base64(v, finding.result, r); },
       .instead_of = "result"},
      member<&EffectFinding::reason>("reason", true),
      member<&EffectFinding::begun_under>("token"),
  };
  return read_object(value, into, kMembers, refusal);
}

bool read(Json value, ListRequest& into, Refusal& refusal) {
  static constexpr Member<ListRequest> kMembers[] = {
      member<&ListRequest::queue>("queue"),
      member<&ListRequest::kind>("kind"),
      member<&ListRequest::state>("state"),
  };
  return read_object(value, into, kMembers, refusal);
}

std::string unknown_field(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kShown = 64;
  std::string text = "there is no field \"" + std::string{name.substr(0, kShown)} + "\"";
  const std::vector<std::string> names{known.begin(), known.end()};
  if (const auto meant = nearest(name, names)) return text + "; did you mean \"" + *meant + "\"?";
  text += "; there are";
  for (const std::string& each : names) text += (&each == names.data() ? " " : ", ") + each;
  return text;
}

}  // namespace faultline::codec
