#include "cli/output.h"

#include <ostream>

namespace faultline::cli {

void Output::print(const Answer& answer) const {
  if (json_) {
    *out_ << answer.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
  } else {
    *out_ << answer.text << std::flush;
  }
}

void Output::print(const Failure& failure) const {
  if (json_) {
    const nlohmann::json object{
        {"error", {{"code", failure.code}, {"message", failure.message}, {"hint", failure.hint}}}};
    *err_ << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
    return;
  }
  *err_ << "faultline: " << failure.message << '\n';
  if (!failure.hint.empty()) *err_ << "  hint: " << failure.hint << '\n';
  *err_ << std::flush;
}

}  // namespace faultline::cli
