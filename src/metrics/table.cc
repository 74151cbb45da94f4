#include "metrics/table.h"

namespace faultline::metrics {

std::string_view to_string(Type type) {
  switch (type) {
    case Type::counter:
      return "counter";
    case Type::gauge:
      return "gauge";
    case Type::histogram:
      return "histogram";
  }
  return "";
}

}  // namespace faultline::metrics
