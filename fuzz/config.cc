// The settings of a server: any file is read or refused with a message, and what was read can be written
// again.

#include <string>

#include "config/settings.h"
#include "config/values.h"
#include "fuzz/target.h"

namespace faultline::fuzz {
namespace {

void load(std::string_view text) {
  const auto loaded = config::load_text(text, "faultline.toml", {});
  if (!loaded) {
    require(!loaded.error().message.empty() && !loaded.error().hint.empty(),
            "a refusal says what is wrong and what to do");
    require(!text.contains(":hunter2@") || !loaded.error().message.contains("hunter2"),
            "a refusal does not show a password");
    return;
  }
  config::Sources written;
  for (const config::Setting& setting : config::all_settings()) {
    if (!setting.secret) written.flags[setting.name] = config::shown(loaded->settings, setting.name);
  }
  const auto again = config::load_text("", "faultline.toml", written);
  require(again.has_value(), "what was read can be given again as it is shown");
  for (const auto& [name, value] : written.flags)
    require(config::shown(again->settings, name) == value, "and means the same");
}

void parse_values(std::string_view text) {
  if (const auto duration = config::parse_duration(text)) {
    require(*duration >= duration->zero(), "a duration is not negative");
    require(config::parse_duration(config::write_duration(*duration)) == duration,
            "a duration is read as it is written");
  }
  if (const auto size = config::parse_size(text)) {
    require(config::parse_size(config::write_size(*size)) == size, "a size is read as it is written");
  }
}

}  // namespace

void run(std::string_view input) {
  parse_values(input);
  load(input);
}

}  // namespace faultline::fuzz
