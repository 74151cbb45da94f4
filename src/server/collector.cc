#include "server/collector.h"

#include <algorithm>
#include <optional>

#include "audit/audit.h"
#include "faultline/store.h"
#include "pg/connection.h"
#include "sql/statements.h"

namespace faultline::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// For a look, and with it how long the end of a server may wait for one.
constexpr milliseconds kLookMax{3'000};
constexpr milliseconds kAuditMax{600'000};
/// An audit that could not be run is tried again after this time, or after its interval if that is shorter.
constexpr milliseconds kAuditAgain{30'000};
/// An audit reads whole tables, and its snapshot holds vacuum back: it may take a twentieth of the time.
constexpr int kAuditPart = 20;

/// The connections of the thread that looks. One that failed is opened again at the next look.
class DatabaseSampler {
 public:
  DatabaseSampler(const std::string& database, int interrupt_fd)
      : database_(database), interrupt_fd_(interrupt_fd) {}

  /// False: the database does not answer.
  bool sample(metrics::Metrics& metrics) {
    auto counts = queue_counts();
    auto health = counts ? database_health() : std::nullopt;
    if (!health) {
      store_.reset();
      connection_.reset();
      return false;
    }
    metrics.show_queues(*counts);
    metrics.show_database(*health);
    return true;
  }

 private:
  std::optional<std::vector<QueueCounts>> queue_counts() {
    if (!store_) {
      auto opened = Store::open({.database = database_,
                                 .application_name = "faultline metrics",
                                 .connections_max = 1,
                                 .transactions_max = 1,
                                 .call_timeout = kLookMax});
      if (!opened) return std::nullopt;
      store_.emplace(std::move(*opened));
    }
    auto counts = store_->counts();
    if (!counts) return std::nullopt;
    return std::move(*counts);
  }

  std::optional<metrics::DatabaseHealth> database_health() {
    const Deadline until = Clock::now() + kLookMax;
    if (!connection_) {
      auto opened = pg::Connection::open(
          {.dsn = database_, .application_name = "faultline metrics", .interrupt_fd = interrupt_fd_}, until);
      if (!opened) return std::nullopt;
      connection_.emplace(std::move(*opened));
    }
    const auto rows = connection_->exec(sql::kDatabaseHealth, {}, until);
    if (!rows) return std::nullopt;
    return metrics::DatabaseHealth{.oldest_snapshot_age_seconds = rows->get<double>(0, 0),
                                   .oldest_xmin_age_transactions = rows->get<double>(0, 1),
                                   .connections = rows->get<double>(0, 2),
                                   .connections_max = rows->get<double>(0, 3)};
  }

  const std::string& database_;
  const int interrupt_fd_;
  std::optional<Store> store_;
  std::optional<pg::Connection> connection_;
};

}  // namespace

Collector::Collector(Options options) : options_(std::move(options)) {
  options_.metrics->database_is_lost();  // until it has been seen
  sampler_thread_ = std::thread{[this] { sample_periodically(); }};
  if (options_.audit_every.count() > 0) auditor_ = std::thread{[this] { audit_periodically(); }};
}

Collector::~Collector() {
  interrupt_.fire();
  sampler_thread_.join();
  if (auditor_.joinable()) auditor_.join();
}

void Collector::sample_periodically() {
  DatabaseSampler sampler{options_.database, interrupt_.fd()};
  do {
    if (!sampler.sample(*options_.metrics) && !interrupt_.fired()) options_.metrics->database_is_lost();
  } while (!interrupt_.wait(Clock::now() + options_.sample_every));
}

void Collector::audit_periodically() {
  Clock::time_point next;
  do {
    const Clock::time_point began = Clock::now();
    const bool audited = audit();
    if (interrupt_.fired()) return;
    if (!audited) options_.metrics->audit_failed();
    const milliseconds wait = audited ? options_.audit_every : std::min(options_.audit_every, kAuditAgain);
    next = Clock::now() + std::max<Clock::duration>(wait, kAuditPart * (Clock::now() - began));
  } while (!interrupt_.wait(next));
}

bool Collector::audit() {
  const Clock::time_point began = Clock::now();
  auto connection = pg::Connection::open(
      {.dsn = options_.database, .application_name = "faultline audit", .interrupt_fd = interrupt_.fd()},
      began + kLookMax);
  if (!connection) return false;
  constexpr std::size_t kNoExamples = 0;
  const auto report = audit::check(*connection, kNoExamples, began + kAuditMax);
  if (!report) return false;
  std::vector<std::pair<std::string, std::int64_t>> violations;
  for (const audit::Check& check : report->checks) violations.emplace_back(check.name, check.violations);
  options_.metrics->show_audit(std::move(violations), Clock::now() - began);
  return true;
}

}  // namespace faultline::server
