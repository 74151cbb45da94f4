#include "pg/connect.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <regex>

#include "pg/wire.h"

namespace faultline::pg {
namespace {

using Keywords = std::map<std::string, std::string>;

struct ConnectionDeleter {
  void operator()(PGconn* connection) const noexcept { PQfinish(connection); }
};
using ConnectionHandle = std::unique_ptr<PGconn, ConnectionDeleter>;

Error invalid_dsn(std::string message) {
  return {.code = Errc::invalid_value, .message = std::move(message)};
}

// libpq's own message about a DSN quotes parts of it, and so perhaps the password: ours does not.
Expected<Keywords> parse(const std::string& dsn) {
  std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options{PQconninfoParse(dsn.c_str(), nullptr),
                                                                       &PQconninfoFree};
  if (!options) {
    return std::unexpected(invalid_dsn(
        "the database URL cannot be read; write postgresql://user@host:port/database or keyword=value pairs, "
        "with special characters percent-encoded or quoted"));
  }
  Keywords keywords;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr) keywords.emplace(option->keyword, option->val);
  }
  if (const auto host = keywords.find("host");
      host != keywords.end() && host->second.find('@', 1) != std::string::npos) {
    return std::unexpected(
        invalid_dsn("the host in the database URL contains '@'; write an '@' in the password as %40"));
  }
  return keywords;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::size_t start = 0;
  for (std::size_t comma = 0; comma != std::string::npos; start = comma + 1) {
    comma = list.find(',', start);
    items.push_back(list.substr(start, comma == std::string::npos ? comma : comma - start));
  }
  return items;
}

// One set of keywords per host. Lists whose lengths differ are left for libpq to complain about.
std::vector<Keywords> split_hosts(const Keywords& keywords) {
  std::size_t hosts = 1;
  for (const char* key : {"host", "hostaddr"}) {
    if (const auto it = keywords.find(key); it != keywords.end())
      hosts = std::max(hosts, split(it->second).size());
  }
  std::vector<Keywords> each(hosts, keywords);
  if (hosts == 1) return each;
  for (const char* key : {"host", "hostaddr", "port"}) {
    const auto it = keywords.find(key);
    if (it == keywords.end()) continue;
    const std::vector<std::string> items = split(it->second);
    if (items.size() != hosts && items.size() != 1) return {keywords};
    for (std::size_t i = 0; i < hosts; ++i) each[i][key] = items.size() == 1 ? items[0] : items[i];
  }
  return each;
}

void set_defaults(Keywords& keywords, const ConnectOptions& options) {
  keywords.try_emplace("application_name", options.application_name);
  keywords.try_emplace("client_encoding", "UTF8");
  keywords.try_emplace("keepalives", "1");
  keywords.try_emplace("keepalives_idle", "5");
  keywords.try_emplace("keepalives_interval", "2");
  keywords.try_emplace("keepalives_count", "3");
  keywords.try_emplace("tcp_user_timeout", std::to_string(options.tcp_user_timeout.count()));
}

std::chrono::milliseconds host_timeout(const Keywords& keywords, const ConnectOptions& options) {
  const auto it = keywords.find("connect_timeout");
  if (it == keywords.end()) return options.connect_timeout;
  int seconds = 0;
  std::from_chars(it->second.data(), it->second.data() + it->second.size(), seconds);
  return seconds > 0 ? std::chrono::seconds{seconds} : std::chrono::milliseconds::max();
}

// libpq keeps the SQLSTATE of a refused connection to itself, except in the text of a verbose message:
// `FATAL:  28P01: password authentication failed …` and at the end `LOCATION:  auth_failed, auth.c:326`.
Error cannot_connect(const PGconn* connection) {
  Error error{.code = Errc::cannot_connect};
  std::string text = PQerrorMessage(connection);
  static const std::regex location{R"(\n[^\n]*:  \w+, [\w./-]+\.c:\d+)"};
  static const std::regex sqlstate{R"((:  )([0-9A-Z]{5}): )"};
  text = std::regex_replace(text, location, "");
  if (std::smatch found; std::regex_search(text, found, sqlstate)) error.sqlstate = found[2].str();
  error.message = one_line(std::regex_replace(text, sqlstate, "$1").c_str());
  return error;
}

Error no_answer(const Keywords& keywords) {
  const auto host = keywords.find("host");
  const std::string name = host == keywords.end() ? "the server" : "host " + host->second;
  return {.code = Errc::cannot_connect, .message = name + " did not answer in time"};
}

Expected<ConnectionHandle> connect_to_host(const Keywords& keywords, Deadline deadline, int interrupt_fd) {
  std::vector<const char*> names;
  std::vector<const char*> values;
  for (const auto& [name, value] : keywords) {
    names.push_back(name.c_str());
    values.push_back(value.c_str());
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  ConnectionHandle connection{PQconnectStartParams(names.data(), values.data(), 0)};
  if (!connection) return std::unexpected(Error{.code = Errc::cannot_connect, .message = "out of memory"});
  if (PQstatus(connection.get()) == CONNECTION_BAD) return std::unexpected(cannot_connect(connection.get()));
  PQsetErrorVerbosity(connection.get(), PQERRORS_VERBOSE);
  PQsetNoticeReceiver(connection.get(), [](void*, const PGresult*) {}, nullptr);

  auto polling = PGRES_POLLING_WRITING;
  while (polling != PGRES_POLLING_OK) {
    if (polling == PGRES_POLLING_FAILED) return std::unexpected(cannot_connect(connection.get()));
    short events = polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    if (wait_for_socket(PQsocket(connection.get()), events, deadline, interrupt_fd) != Ready::yes) {
      return std::unexpected(no_answer(keywords));
    }
    polling = PQconnectPoll(connection.get());
  }
  PQsetErrorVerbosity(connection.get(), PQERRORS_DEFAULT);
  PQsetnonblocking(connection.get(), 1);
  return connection;
}

// Tries the hosts in turn. Of several errors the last is returned, with the earlier ones in its detail.
Expected<PGconn*> connect_to_any(std::vector<Keywords> hosts, const ConnectOptions& options,
                                 Deadline deadline) {
  Error error;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    set_defaults(hosts[i], options);
    const auto now = Deadline::clock::now();
    const auto share = (deadline - now) / static_cast<int>(hosts.size() - i);
    const auto until = now + std::min<Deadline::duration>(
                                 share, std::min<std::chrono::milliseconds>(host_timeout(hosts[i], options),
                                                                            std::chrono::hours{24}));
    auto connection = connect_to_host(hosts[i], until, options.interrupt_fd);
    if (connection) return connection->release();
    std::string earlier =
        error.message.empty() ? "" : error.message + (error.detail.empty() ? "" : "; " + error.detail);
    error = std::move(connection.error());
    error.detail = std::move(earlier);
  }
  return std::unexpected(std::move(error));
}

// libpq prefers a standby by going through all hosts twice; so do we.
std::vector<Keywords> standby_first(const std::vector<Keywords>& hosts) {
  std::vector<Keywords> passes;
  for (const char* wanted : {"standby", "any"}) {
    for (Keywords host : hosts) {
      host["target_session_attrs"] = wanted;
      passes.push_back(std::move(host));
    }
  }
  return passes;
}

}  // namespace

Expected<PGconn*> connect(const ConnectOptions& options, Deadline deadline) {
  if (Deadline::clock::now() >= deadline) {
    return std::unexpected(Error{.code = Errc::deadline_exceeded, .message = "no time was left to connect"});
  }
  auto keywords = parse(options.dsn);
  if (!keywords) return std::unexpected(std::move(keywords.error()));
  std::vector<Keywords> hosts = split_hosts(*keywords);
  if (hosts.size() > 1) {
    for (Keywords& host : hosts) host.try_emplace("target_session_attrs", "read-write");
    if (hosts[0].at("target_session_attrs") == "prefer-standby") hosts = standby_first(hosts);
  }
  return connect_to_any(std::move(hosts), options, deadline);
}

}  // namespace faultline::pg
