#include "worker/outages.h"

#include <utility>

namespace faultline::worker {
namespace {

constexpr std::chrono::seconds kTellEvery{10};

}  // namespace

void Outages::failed(const Error& error) {
  const std::lock_guard lock{mutex_};
  const bool locked = error.code == ErrorCode::locked;
  if (outage_ && outage_->locked == locked) return;
  const Clock::time_point now = Clock::now();
  if (!outage_) outage_ = Outage{.since = now};
  outage_->locked = locked;
  if (!locked) metrics_.connected(false);
  if (!outage_->told && told_at_ && now < *told_at_ + kTellEvery) {
    ++untold_;
    return;
  }
  told_at_ = now;
  outage_->told = true;
  Log::Fields fields{{"error", error.describe()}};
  if (untold_ > 0) fields.emplace_back("untold", std::to_string(std::exchange(untold_, 0)));
  if (locked)
    log_.tell(Severity::warning, "database_locked", std::move(fields));
  else
    log_.tell(Severity::error, through_server_ ? "server_lost" : "database_lost", std::move(fields));
}

void Outages::passed() {
  const std::lock_guard lock{mutex_};
  if (!outage_) return;
  const Outage over = *outage_;
  outage_.reset();
  metrics_.connected(true);
  if (!over.told) return;
  const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - over.since);
  log_.tell(Severity::info, through_server_ ? "server_back" : "database_back",
            {{"lasted_ms", std::to_string(lasted.count())}});
}

}  // namespace faultline::worker
