#include "bench/bench_database.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "bench/workload.h"
#include "pg/retry.h"

namespace faultline::bench {
namespace {

pg::Connection open(const std::string& dsn) { return must(pg::Connection::open({.dsn = dsn}, in_time())); }

}  // namespace

BenchDatabase::BenchDatabase(const std::optional<std::string>& beside, const std::stop_token& stop) {
  try {
    on_stop_.emplace(stop, [this] { take_down(); });
    open_databases(beside ? *beside : start_own(stop));
    dsn_ = make_database();
    admin_ = connect();
  } catch (...) {
    take_down();
    throw;
  }
}

BenchDatabase::~BenchDatabase() {
  on_stop_.reset();
  admin_.reset();
  take_down();
}

std::string BenchDatabase::start_own(const std::stop_token& stop) {
  const std::lock_guard lock{mutex_};
  if (down_) throw std::runtime_error("the benchmark was interrupted");
  std::string name = (std::filesystem::temp_directory_path() / "faultline-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory");
  directory_ = name;
  // The server's user must be able to reach its data directory through this one.
  using std::filesystem::perms;
  std::filesystem::permissions(directory_, perms::owner_all | perms::group_read | perms::group_exec |
                                               perms::others_read | perms::others_exec);
  PrivatePostgresOptions options;
  options.data_dir = directory_ / "data";
  options.stop = stop;
  own_ = must(PrivatePostgres::start(options));
  return own_->dsn();
}

void BenchDatabase::open_databases(const std::string& beside) {
  const std::lock_guard lock{mutex_};
  if (down_) throw std::runtime_error("the benchmark was interrupted");
  databases_.emplace(beside, "bench");
}

void BenchDatabase::take_down() noexcept {
  try {
    const std::lock_guard lock{mutex_};
    if (down_) return;
    down_ = true;
    if (databases_) databases_->drop_all();
    if (own_) {
      (void)own_->stop();
      own_.reset();
    }
    if (directory_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  } catch (const std::exception& error) {
    std::fprintf(stderr,
                 "faultline: the benchmark's databases could not be dropped; the next one drops them: %s\n",
                 error.what());
  }
}

std::string BenchDatabase::make_database() { return databases_->create(); }

pg::Connection BenchDatabase::connect() const { return open(dsn_); }

void BenchDatabase::script(const std::string& sql) {
  // A server or a worker of the benchmark may be at work on the same tables, and locks them in another order.
  // A deadlock undoes the whole script.
  must(pg::with_retry(in_time(), {}, [&] { return admin_->exec_script(sql, in_time()); }));
}

void BenchDatabase::clear() {
  // In one transaction: a server that claims between the two would be counted, and its job would not be
  // there.
  script(
      "TRUNCATE faultline.ledger, faultline.grants, faultline.tallies;"
      "DELETE FROM faultline.jobs WHERE queue <> ''");
  script("VACUUM ANALYZE faultline.jobs");
}

}  // namespace faultline::bench
