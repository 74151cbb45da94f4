#include "drills/history.h"

namespace faultline::drills {

std::string effect_key(std::size_t worker) { return "step of " + worker_name(worker); }
std::string late_effect_key(std::size_t worker) { return "late step of " + worker_name(worker); }

}  // namespace faultline::drills
