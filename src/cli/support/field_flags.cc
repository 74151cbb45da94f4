#include "cli/support/field_flags.h"

#include <cctype>
#include <charconv>

#include "base/rfc3339.h"
#include "base/words.h"
#include "config/settings.h"
#include "config/values.h"

namespace faultline::cli {
namespace {

/// What help says that a value is.
std::string type_name(const FieldInfo& field) {
  std::string name{field.flag.substr(2)};
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}
template <class T>
std::string type_name(const FieldInfo& field) {
  if constexpr (std::same_as<T, int>) return "N";
  if constexpr (std::same_as<T, std::chrono::milliseconds>) return "DURATION";
  if constexpr (std::same_as<T, DatabaseTime>) return "TIME";
  return type_name(field);
}

template <class T>
struct ValueOf {
  using type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using type = T;
};

/// What help says beside the one line.
template <class T>
std::string more_help(const FieldInfo& field) {
  if constexpr (std::same_as<T, Delivery>) return ": " + list_of_words<Delivery>();
  if constexpr (std::same_as<T, DatabaseTime>) return ", such as 2030-01-31T12:00:00Z";
  if constexpr (std::same_as<T, std::vector<std::string>>) return "; may be repeated";
  if (field.form == Form::cap) return ", as none does";
  return "";
}

// What a member is when no flag says more, as text; "": nothing.
std::string default_text(const std::string& value) { return value; }
std::string default_text(int value) { return std::to_string(value); }
std::string default_text(Delivery value) { return std::string{to_string(value)}; }
std::string default_text(const auto& /*value*/) { return ""; }

Failure bad_value(const FieldInfo& field, const std::string& text, const std::string& what,
                  const std::string& hint) {
  return wrong_usage(std::string{field.flag} + ": " + config::quoted(text) + " is not " + what, hint);
}

Expected<void> read_text(const FieldInfo& field, const std::string& text, int& into) {
  if (field.form == Form::cap && text == "none") {
    into = -1;
    return {};
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  const bool good = error == std::errc{} && end == text.data() + text.size();
  if (field.form == Form::cap && (!good || into < 0))
    return std::unexpected(
        bad_value(field, text, "a number of jobs", "give 0 or more, or none to take the cap away"));
  if (!good) return std::unexpected(bad_value(field, text, "a whole number", "write it in digits"));
  return {};
}
Expected<void> read_text(const FieldInfo& field, const std::string& text, std::chrono::milliseconds& into) {
  const auto duration = config::parse_duration(text);
  if (!duration)
    return std::unexpected(bad_value(field, text, "a duration",
                                     "write a whole number with its unit, such as 250ms, 30s, 5m, 2h or 7d"));
  into = *duration;
  return {};
}
Expected<void> read_text(const FieldInfo& field, const std::string& text, DatabaseTime& into) {
  const auto time = parse_rfc3339(text);
  if (!time) return std::unexpected(bad_value(field, text, "a moment", "write it as 2030-01-31T12:00:00Z"));
  into = *time;
  return {};
}
Expected<void> read_text(const FieldInfo& field, const std::string& text, Delivery& into) {
  const auto delivery = parse_delivery(text);
  if (!delivery)
    return std::unexpected(wrong_usage(std::string{field.flag} + ": there is no " + config::quoted(text),
                                       "it is one of " + list_of_words<Delivery>()));
  into = *delivery;
  return {};
}
Expected<void> read_text(const FieldInfo& /*field*/, const std::string& text, std::string& into) {
  into = text;
  return {};
}
}  // namespace

template <class Struct>
std::vector<CLI::Option*> FieldFlags<Struct>::add_to(CLI::App& command) {
  std::vector<CLI::Option*> options;
  std::size_t at = 0;
  for_each_field<Struct>([&]<class T>(const Field<Struct, T>& field) {
    std::vector<std::string>& texts = given_[at++];
    if (field.flag.empty()) return;
    using Value = typename ValueOf<T>::type;
    CLI::Option* option = command.add_option(std::string{field.flag}, texts,
                                             std::string{field.about} + more_help<Value>(field));
    option->type_name(type_name<Value>(field))->expected(1);
    if constexpr (std::same_as<T, std::vector<std::string>>) {
      option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
    } else if (const std::string text = default_text(field.of(Struct{})); !text.empty()) {
      option->default_str(text);
    }
    options.push_back(option);
  });
  return options;
}

template <class Struct>
Expected<void> FieldFlags<Struct>::read(Struct& into) const {
  Expected<void> done;
  std::size_t at = 0;
  for_each_field<Struct>([&]<class T>(const Field<Struct, T>& field) {
    const std::vector<std::string>& texts = given_[at++];
    if (texts.empty() || !done) return;
    if constexpr (std::same_as<T, std::vector<std::string>>) {
      field.of(into) = texts;
    } else {
      typename ValueOf<T>::type value{};
      if constexpr (requires { read_text(field, texts.front(), value); }) {
        done = read_text(field, texts.front(), value);
        field.of(into) = std::move(value);
      }
    }
  });
  return done;
}

template class FieldFlags<NewJob>;
template class FieldFlags<QueueSettings>;

}  // namespace faultline::cli
