#include "workload.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "schema/migrator.h"

namespace faultline::bench {
namespace {

pg::Connection open(const std::string& dsn) { return must(pg::Connection::open({.dsn = dsn}, in_time())); }

}  // namespace

double measure(std::size_t threads, const std::function<std::size_t(std::size_t thread)>& work) {
  std::atomic<std::size_t> jobs{0};
  std::barrier start{static_cast<std::ptrdiff_t>(threads) + 1};
  std::vector<std::jthread> running;
  std::exception_ptr failure;
  std::mutex mutex;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      start.arrive_and_wait();
      try {
        while (const std::size_t done = work(thread)) jobs += done;
      } catch (...) {
        const std::lock_guard lock{mutex};
        failure = std::current_exception();
      }
    });
  }
  const auto begun = std::chrono::steady_clock::now();
  start.arrive_and_wait();
  running.clear();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  if (failure) std::rethrow_exception(failure);
  return static_cast<double>(jobs) / took.count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Server::Server() {
  std::string name = (std::filesystem::temp_directory_path() / "faultline-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory");
  directory_ = name;
  // The server's user must be able to reach its data directory through this one.
  using std::filesystem::perms;
  std::filesystem::permissions(directory_, perms::owner_all | perms::group_read | perms::group_exec |
                                               perms::others_read | perms::others_exec);
  server_ = must(PrivatePostgres::start({.data_dir = directory_ / "data"}));
  admin_ = connect();
  must(schema::migrate(*admin_, {}, in_time()));
}

Server::~Server() {
  admin_.reset();
  server_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string Server::make_database(const std::string& name) {
  script("CREATE DATABASE " + name);
  std::string dsn = server_->dsn_for(name);
  pg::Connection connection = open(dsn);
  must(schema::migrate(connection, {}, in_time()));
  return dsn;
}

pg::Connection Server::connect() const { return open(server_->dsn()); }

void Server::script(const std::string& sql) { must(admin_->exec_script(sql, in_time())); }

std::size_t peak_memory_kib() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

}  // namespace faultline::bench
