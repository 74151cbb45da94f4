#include "bench/server.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "bench/workload.h"
#include "faultline/uuid.h"
#include "schema/migrator.h"

namespace faultline::bench {
namespace {

pg::Connection open(const std::string& dsn) { return must(pg::Connection::open({.dsn = dsn}, in_time())); }

/// The same server, another database. In both forms of a DSN the last word on a setting counts.
std::string with_database(std::string dsn, const std::string& database) {
  if (dsn.contains("://"))
    dsn += dsn.contains('?') ? "&dbname=" : "?dbname=";
  else
    dsn += " dbname=";
  return dsn += database;
}

std::string random_prefix() {
  std::string digits = Uuid::random().to_string();
  std::erase(digits, '-');
  return "faultline_bench_" + digits.substr(0, 12);
}

}  // namespace

Server::Server(const std::optional<std::string>& beside, const std::stop_token& stop)
    : prefix_(random_prefix()) {
  try {
    on_stop_.emplace(stop, [this] { take_down(); });
    host_dsn_ = beside ? *beside : start_own(stop);
    dsn_ = make_database();
    admin_ = connect();
  } catch (...) {
    take_down();
    throw;
  }
}

Server::~Server() {
  on_stop_.reset();
  admin_.reset();
  take_down();
}

std::string Server::start_own(const std::stop_token& stop) {
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

void Server::take_down() noexcept {
  try {
    const std::lock_guard lock{mutex_};
    if (down_) return;
    down_ = true;
    if (own_) {
      (void)own_->stop();
      own_.reset();
    } else if (!databases_.empty()) {
      pg::Connection connection = open(host_dsn_);
      for (const std::string& database : databases_) {
        must(connection.exec_script("DROP DATABASE IF EXISTS " + database + " WITH (FORCE)", in_time()));
      }
    }
    if (directory_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faultline: the benchmark's databases %s_… could not be dropped: %s\n",
                 prefix_.c_str(), error.what());
  }
}

std::string Server::make_database() {
  std::string dsn;
  {
    const std::lock_guard lock{mutex_};
    if (down_) throw std::runtime_error("the benchmark was interrupted");
    const std::string name = prefix_ + "_" + std::to_string(databases_.size() + 1);
    dsn = with_database(host_dsn_, name);
    pg::Connection connection = open(host_dsn_);
    if (const auto made =
            connection.exec_script("CREATE DATABASE " + name + " TEMPLATE template0", in_time());
        !made) {
      throw std::runtime_error("no scratch database can be made on this server: " + made.error().describe() +
                               "; a benchmark needs a login that may create databases");
    }
    databases_.push_back(name);
  }
  pg::Connection connection = open(dsn);
  must(schema::migrate(connection, {}, in_time()));
  return dsn;
}

pg::Connection Server::connect() const { return open(dsn_); }

void Server::script(const std::string& sql) { must(admin_->exec_script(sql, in_time())); }

void Server::clear() {
  script("TRUNCATE faultline.ledger, faultline.grants, faultline.tallies");
  script("DELETE FROM faultline.jobs WHERE queue <> ''");
  script("VACUUM ANALYZE faultline.jobs");
}

}  // namespace faultline::bench
