#pragma once

// A program's own connection to the database, which Faultline knows nothing of: the least of libpq.

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <libpq-fe.h>

namespace example {

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
