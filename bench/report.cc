#include "bench/report.h"

#include <algorithm>
#include <cmath>

namespace faultline::bench {

Report& Report::add(std::string name, nlohmann::json value, std::string note) {
  figures_.push_back({std::move(name), std::move(value), std::move(note)});
  return *this;
}

Report& Report::add_number(std::string name, double value, int decimals, std::string note) {
  if (decimals == 0) return add(std::move(name), std::llround(value), std::move(note));
  const double scale = std::pow(10.0, decimals);
  return add(std::move(name), std::round(value * scale) / scale, std::move(note));
}

nlohmann::json Report::json() const {
  nlohmann::json object = nlohmann::json::object();
  for (const Figure& figure : figures_) object[figure.name] = figure.value;
  return object;
}

std::string Report::text() const {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  std::vector<std::string> values;
  for (const Figure& figure : figures_) {
    values.push_back(figure.value.dump());
    name_width = std::max(name_width, figure.name.size());
    value_width = std::max(value_width, values.back().size());
  }
  std::string text = title_ + "\n";
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    const Figure& figure = figures_[i];
    text += "  " + figure.name + std::string(name_width - figure.name.size() + 2, ' ');
    text += std::string(value_width - values[i].size(), ' ') + values[i];
    if (!figure.note.empty()) text += "  " + figure.note;
    text += "\n";
  }
  return text;
}

}  // namespace faultline::bench
