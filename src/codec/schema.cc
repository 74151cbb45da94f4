#include "codec/schema.h"

#include <optional>

#include "base/fields.h"
#include "base/json_text.h"
#include "base/words.h"

namespace faultline::codec {
namespace {

// What a type is in JSON Schema: the name of a component, or a type.

template <class T>
struct TypeSchema;
template <class T>
struct TypeSchema<std::optional<T>> : TypeSchema<T> {};
template <>
struct TypeSchema<std::string> {
  static constexpr std::string_view type = "string";
};
template <>
struct TypeSchema<bool> {
  static constexpr std::string_view type = "boolean";
};
template <>
struct TypeSchema<int> {
  static constexpr std::string_view type = "integer";
};
template <>
struct TypeSchema<std::int64_t> : TypeSchema<int> {};
template <>
struct TypeSchema<std::chrono::milliseconds> : TypeSchema<int> {};
template <>
struct TypeSchema<std::chrono::microseconds> : TypeSchema<int> {};
template <>
struct TypeSchema<double> {
  static constexpr std::string_view type = "number";
};
template <>
struct TypeSchema<std::vector<std::string>> {
  static constexpr std::string_view type = "array";
};
template <>
struct TypeSchema<DatabaseTime> {
  static constexpr std::string_view component = "Time";
};
template <>
struct TypeSchema<Uuid> {
  static constexpr std::string_view component = "Id";
};
template <>
struct TypeSchema<JobId> : TypeSchema<Uuid> {};
template <>
struct TypeSchema<FenceToken> {
  static constexpr std::string_view component = "Token";
};
template <>
struct TypeSchema<JobState> {
  static constexpr std::string_view component = "JobState";
};
template <>
struct TypeSchema<Delivery> {
  static constexpr std::string_view component = "Delivery";
};
template <>
struct TypeSchema<StaleReason> {
  static constexpr std::string_view component = "StaleReason";
};
template <>
struct TypeSchema<Lease> {
  static constexpr std::string_view component = "Lease";
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// What a caller sends has limits, defaults, and nothing that is not known.
template <class Struct>
inline constexpr bool kIsInput = false;
template <>
inline constexpr bool kIsInput<NewJob> = true;
template <>
inline constexpr bool kIsInput<QueueSettings> = true;
template <>
inline constexpr bool kIsInput<Lease> = true;

void refer(JsonWriter& out, std::string_view component) {
  out.key("$ref").string("#/components/schemas/" + std::string{component});
}

void bound(JsonWriter& out, std::string_view least, std::string_view most, const FieldInfo& field) {
  if (!least.empty() && (field.max != FieldInfo::kUnbounded || field.min != 0))
    out.key(least).integer(field.min);
  if (field.max != FieldInfo::kUnbounded) out.key(most).integer(field.max);
}

template <class T>
void write_bounds(JsonWriter& out, const FieldInfo& field, std::string_view type) {
  if (type == "integer") bound(out, "minimum", "maximum", field);
  if (type == "string") bound(out, "minLength", "maxLength", field);
  if (type == "array") bound(out, "", "maxItems", field);
}

/// The value of a member that is not given, where there is one.
void write_default(JsonWriter& out, const std::string& value) {
  if (!value.empty()) out.key("default").string(value);
}
void write_default(JsonWriter& out, int value) { out.key("default").integer(value); }
void write_default(JsonWriter& out, Delivery value) { out.key("default").string(to_string(value)); }
void write_default(JsonWriter& /*out*/, const auto& /*value*/) {}

void write_base64(JsonWriter& out, std::string_view name) {
  out.key(std::string{name} + "_base64").begin_object();
  out.key("type").string("string").key("contentEncoding").string("base64");
  out.key("description").string("Instead of " + std::string{name} + ": bytes that are not JSON");
  out.end_object();
}

template <class Struct, class T>
void write_property(JsonWriter& out, const Field<Struct, T>& field) {
  if constexpr (std::same_as<T, Encoding>) {
    return;
  } else {
    using Schema = TypeSchema<T>;
    out.key(field.name).begin_object();
    const bool any = field.form == Form::payload || field.form == Form::result;
    if (!field.schema.empty()) {
      refer(out, field.schema);
    } else if (any) {
      // Any JSON value.
    } else if (field.nullable) {
      out.key("type").begin_array().string("string").string("null").end_array();
      out.key("format").string("date-time");
    } else if constexpr (requires { Schema::component; }) {
      refer(out, Schema::component);
    } else {
      if (field.form == Form::cap) {
        out.key("type").begin_array().string(Schema::type).string("null").end_array();
      } else {
        out.key("type").string(Schema::type);
      }
      if (Schema::type == "array") out.key("items").begin_object().key("type").string("string").end_object();
      if (kIsInput<Struct>) write_bounds<T>(out, field, Schema::type);
    }
    if (kIsInput<Struct> && !any && !field.required) write_default(out, field.of(Struct{}));
    out.key("description").string(field.about);
    out.end_object();
    if (any) write_base64(out, field.name);
  }
}

template <class Struct, class T>
bool is_required(const Field<Struct, T>& field) {
  if (field.form != Form::value) return false;
  return kIsInput<Struct> ? field.required : !kIsOptional<T>;
}

/// One object with the members of all of these structs.
template <class... Structs>
std::string object_schema(std::string_view without = {}) {
  const auto each = [&](const auto& visit) {
    (for_each_field<Structs>([&](const auto& field) {
       if (field.name != without) visit(field);
     }),
     ...);
  };
  JsonWriter out;
  out.begin_object();
  out.key("type").string("object");
  out.key("required").begin_array();
  each([&](const auto& field) {
    if (is_required(field)) out.string(field.name);
  });
  out.end_array();
  if ((kIsInput<Structs> || ...)) out.key("additionalProperties").boolean(false);
  out.key("properties").begin_object();
  each([&](const auto& field) { write_property(out, field); });
  out.end_object();
  out.end_object();
  return out.take();
}

template <class Enum>
std::string enum_schema(std::string_view about) {
  JsonWriter out;
  out.begin_object().key("enum").begin_array();
  for (const std::string_view word : words_of<Enum>()) out.string(word);
  out.end_array();
  out.key("description").string(about);
  out.end_object();
  return out.take();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> struct_schemas() {
  return {
      {"JobState", enum_schema<JobState>("Where a job is in its life")},
      {"Delivery",
       enum_schema<Delivery>("What becomes of a job whose lease runs out: another attempt, the dead "
                             "letters, or it waits for a person")},
      {"StaleReason", enum_schema<StaleReason>("Why a write was refused")},
      {"Outcome", enum_schema<Outcome::Kind>("How an attempt ended, as its worker reports it")},
      {"NewJob", object_schema<NewJob>()},
      {"JobSummary", object_schema<JobSummary>()},
      {"Job", object_schema<Job>()},
      {"Attempt", object_schema<Attempt>()},
      {"StaleWrite", object_schema<StaleWrite>()},
      {"EffectRecord", object_schema<EffectRecord>()},
      {"EffectDecision", object_schema<EffectDecision>()},
      {"QueueSettings", object_schema<QueueSettings>()},
      // The name stands in the queue's own fields.
      {"Queue", object_schema<Queue, QueueCounts>("queue")},
      {"Lease", object_schema<Lease>()},
      {"ClaimedJob", object_schema<ClaimedJob>()},
      {"Stale", object_schema<Stale>()},
  };
}

}  // namespace faultline::codec
