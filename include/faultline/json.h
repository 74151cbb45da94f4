#pragma once

// Typed payloads, for programs that use nlohmann-json. The only header of Faultline that needs it.

#include <concepts>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "faultline/handler.h"
#include "faultline/job.h"

namespace faultline {

/// A job whose payload is `value` as JSON. The other options as given. Throws nlohmann::json::type_error for
/// text that is not UTF-8.
template <class T>
[[nodiscard]] NewJob json_job(std::string kind, const T& value, NewJob options = {}) {
  options.kind = std::move(kind);
  options.payload = nlohmann::json(value).dump();
  options.encoding = Encoding::json;
  return options;
}

/// Text that is not the JSON of a T. Says where, and never what is there: it goes into logs and into the
/// job's record.
class NotThisType : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads JSON as a T, which needs no default constructor if its `from_json` returns one. Throws NotThisType,
/// and whatever a `from_json` of the program's own throws.
template <class T>
[[nodiscard]] T from_json_text(std::string_view text) {
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw NotThisType("it is not JSON, at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception&) {
    throw NotThisType(
        "a number in it is too large");  // the one other error of parsing; its text quotes the number
  }
  try {
    return tree.get<T>();
  } catch (const nlohmann::json::exception& error) {
    const std::string_view words{error.what()};
    const std::size_t code_end = words.find("] ");  // what precedes it is the library's name for the error
    throw NotThisType(std::string{words.substr(code_end == std::string_view::npos ? 0 : code_end + 2)});
  }
}

/// A handler that gets its payload as a T: `call(const T&, Context&)`, or `call(const T&)`. It returns what a
/// handler may return, or any value that has a JSON form: that is the job's result. A payload that is no T
/// buries the job, with words that name the missing field: another attempt would not help.
template <class T, class F>
[[nodiscard]] Handler json_handler(F call) {
  return Handler{[call = std::move(call)](Context& context) -> Outcome {
    std::optional<T> value;
    try {
      value.emplace(from_json_text<T>(context.payload()));
    } catch (const std::exception& error) {
      return Bury{std::string{"the payload is not what the handler expects: "} + error.what()};
    }
    const auto invoke = [&]() -> decltype(auto) {
      if constexpr (std::invocable<const F&, const T&, Context&>) {
        return call(std::as_const(*value), context);
      } else {
        return call(std::as_const(*value));
      }
    };
    using R = std::invoke_result_t<decltype(invoke)>;
    // A json value would pass for text, because the library converts it to anything.
    constexpr bool is_json = std::same_as<std::remove_cvref_t<R>, nlohmann::json>;
    if constexpr (!is_json && (std::is_void_v<R> || std::convertible_to<R, Outcome> ||
                               std::convertible_to<R, std::string>)) {
      return Context::as_outcome(invoke);
    } else {
      return Outcome::success(nlohmann::json(invoke()).dump());
    }
  }};
}

/// `once` with a typed result: what `step` returns is recorded as JSON, and a later attempt gets it as the
/// same type.
template <class F>
auto json_once(Context& context, std::string_view key, const F& step) {
  using R = std::invoke_result_t<const F&>;
  return from_json_text<R>(context.once(key, [&] { return nlohmann::json(step()).dump(); }));
}
template <class F>
auto json_once(Context& context, std::string_view key, const F& step, RunAgain) {
  using R = std::invoke_result_t<const F&>;
  return from_json_text<R>(context.once(key, [&] { return nlohmann::json(step()).dump(); }, run_again));
}
/// `reconcile` is asked about an unknown effect as `once` does it, and returns a std::optional of what `step`
/// returns.
template <class F, std::invocable<const UnknownEffect&> G>
auto json_once(Context& context, std::string_view key, const F& step, const G& reconcile) {
  using R = std::invoke_result_t<const F&>;
  const Reconcile ask = [&](const UnknownEffect& effect) -> std::optional<std::string> {
    const std::optional<R> happened = reconcile(effect);
    return happened ? std::optional{nlohmann::json(*happened).dump()} : std::nullopt;
  };
  return from_json_text<R>(context.once(key, [&] { return nlohmann::json(step()).dump(); }, ask));
}

}  // namespace faultline
