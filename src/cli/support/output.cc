#include "cli/support/output.h"

#include <algorithm>
#include <ostream>

#include "base/printable.h"

namespace faultline::cli {
namespace {

std::string to_line(const nlohmann::json& value) {
  return printable_json(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void Output::print(const CommandResult& answer) const {
  if (json_ && !answer.json_text.empty()) {
    std::string line = answer.json_text;
    // Between two tokens, which is the only place where JSON may have a line break.
    std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    *out_ << printable_json(line) << '\n' << std::flush;
  } else if (json_) {
    if (answer.json.is_null()) return;  // it has been said line by line
    *out_ << to_line(answer.json) << '\n' << std::flush;
  } else {
    *out_ << printable_lines(answer.text) << std::flush;
  }
}

void Output::print(const Failure& failure) const {
  if (json_) {
    const nlohmann::json object{
        {"error", {{"code", failure.code}, {"message", failure.message}, {"hint", failure.hint}}}};
    *err_ << to_line(object) << '\n' << std::flush;
    return;
  }
  *err_ << "faultline: " << printable_lines(failure.message) << '\n';
  if (!failure.hint.empty()) *err_ << "  hint: " << printable_lines(failure.hint) << '\n';
  *err_ << std::flush;
}

}  // namespace faultline::cli
