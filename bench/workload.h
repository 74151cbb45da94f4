#pragma once

#include <chrono>
#include <cstddef>
#include <expected>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "faultline/store.h"
#include "pg/connection.h"
#include "private_pg/private_postgres.h"

namespace faultline::bench {

/// The value; a benchmark has nothing to say after an error, so it ends with the error's text.
template <class T, class E>
T must(std::expected<T, E> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

[[nodiscard]] inline Deadline in_time() { return Deadline::clock::now() + std::chrono::minutes{30}; }

/// Jobs per second: `threads` threads run `work`, which returns how many jobs it did, and 0 at the end.
[[nodiscard]] double measure(std::size_t threads, const std::function<std::size_t(std::size_t thread)>& work);

[[nodiscard]] double median(std::vector<double> values);

/// A durable PostgreSQL of the benchmark's own, in a temporary directory, with the schema in it.
class Server {
 public:
  Server();
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] const std::string& dsn() const { return server_->dsn(); }
  /// A second database with the schema in it.
  [[nodiscard]] std::string make_database(const std::string& name);
  [[nodiscard]] pg::Connection connect() const;
  void script(const std::string& sql);

 private:
  std::filesystem::path directory_;
  std::optional<PrivatePostgres> server_;
  std::optional<pg::Connection> admin_;
};

/// What every job of every benchmark carries.
inline constexpr std::string_view kPayload = R"({"user":123456,"template":"welcome","locale":"en"})";

/// The peak of this process's memory so far, in KiB.
[[nodiscard]] std::size_t peak_memory_kib();

}  // namespace faultline::bench
