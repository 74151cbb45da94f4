#include "support/every_option.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "base/fields.h"
#include "codec/encode.h"
#include "support/filled.h"

namespace faultline::testing {
NewJob job_with_every_option() {
  auto job = filled<NewJob>();
  job.queue = "every_option";
  job.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  job.delay.reset();
  const NewJob unset;
  for_each_field<NewJob>([&](const auto& field) {
    const bool is_delay = field.name == facts::kDelay.name;
    if (!is_delay && field.of(job) == field.of(unset))
      throw std::logic_error("no option is set for " + std::string{field.name});
  });
  return job;
}

std::string differences(const NewJob& submitted, const std::string& found_json) {
  const auto asked = nlohmann::json::parse(codec::to_json(submitted));
  const auto found = nlohmann::json::parse(found_json);
  std::string text;
  for (const auto& [name, value] : asked.items()) {
    if (!found.contains(name)) {
      text += name + " is missing\n";
    } else if (found.at(name) != value) {
      text += name + " is " + found.at(name).dump() + ", not " + value.dump() + "\n";
    }
  }
  return text;
}

std::string differences(const NewJob& submitted, const Job& found) {
  return differences(submitted, codec::to_json(found));
}

}  // namespace faultline::testing
