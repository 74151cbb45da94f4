#pragma once

// What the examples share and none is about: where the database is, the program's own connection to it, and
// how a small program ends on an error.

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <libpq-fe.h>

#include "faultline/error.h"

namespace example {

/// The first argument, or DATABASE_URL.
inline std::string database_url(int argc, char** argv) {
  if (argc == 2) return argv[1];
  if (const char* url = std::getenv("DATABASE_URL"); argc == 1 && url != nullptr) return url;
  std::cerr << "usage: " << argv[0] << " DATABASE_URL\n";
  std::exit(2);
}

/// An example has no better answer to an error than to end with it. A program of your own may wait for the
/// database, or tell somebody.
template <class T>
T must(faultline::Expected<T> result) {
  if (!result) {
    std::cerr << result.error().describe() << '\n';
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The program's own connection, which Faultline knows nothing of.
class Sql {
 public:
  explicit Sql(const std::string& database) : connection_(PQconnectdb(database.c_str()), &PQfinish) {}

  /// Runs a statement. Returns the first value of its answer, if it has one.
  std::string operator()(const std::string& statement) const {
    const std::unique_ptr<PGresult, decltype(&PQclear)> done{PQexec(connection_.get(), statement.c_str()),
                                                             &PQclear};
    const ExecStatusType status = PQresultStatus(done.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
      std::cerr << PQerrorMessage(connection_.get());
      std::exit(1);
    }
    return PQntuples(done.get()) > 0 ? PQgetvalue(done.get(), 0, 0) : "";
  }
  [[nodiscard]] PGconn* get() const { return connection_.get(); }

 private:
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace example
