#include "pg/wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <openssl/ssl.h>

#include "base/interrupt.h"

namespace faultline::pg {
namespace {

std::string_view field_of(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text == nullptr ? std::string_view{} : std::string_view{text};
}

// The server warns so when it committed and then stopped waiting for a synchronous standby. Its SQLSTATEs
// are too common to tell by themselves; the message is translated; the place in the source is neither.
bool is_cancelled_standby_wait(const PGresult* notice) {
  const std::string_view sqlstate = field_of(notice, PG_DIAG_SQLSTATE);
  const std::string_view source = field_of(notice, PG_DIAG_SOURCE_FILE);
  return field_of(notice, PG_DIAG_SEVERITY_NONLOCALIZED) == "WARNING" &&
         (sqlstate == "01000" || sqlstate == "57P01") && (source.empty() || source == "syncrep.c");
}

}  // namespace

Ready wait_for_socket(int socket, short& events, Deadline deadline, int interrupt_fd) {
  if (socket < 0) return Ready::failed;
  for (;;) {
    // poll() passes over a negative descriptor.
    std::array<pollfd, 2> pollers{pollfd{.fd = socket, .events = events, .revents = 0},
                                  pollfd{.fd = interrupt_fd, .events = POLLIN, .revents = 0}};
    const int ready = poll(pollers.data(), pollers.size(), poll_timeout_ms(deadline));
    if (ready > 0 && pollers[0].revents != 0) {
      events = pollers[0].revents;
      return Ready::yes;
    }
    if (ready > 0) return Ready::deadline;
    if (ready < 0 && errno != EINTR) return Ready::failed;
    if (ready == 0 && Deadline::clock::now() >= deadline) return Ready::deadline;
  }
}

std::string one_line(const char* text) {
  std::string line;
  for (const char c : std::string_view{text}) {
    if (c == '\n' || c == '\t' || c == ' ') {
      if (!line.empty() && line.back() != ' ') line.push_back(' ');
    } else {
      line.push_back(c);
    }
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

bool is_fatal(const PGresult* result) {
  // Poolers leave out the field that is the same in every language; what they say is in English.
  std::string_view severity = field_of(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  if (severity.empty()) severity = field_of(result, PG_DIAG_SEVERITY);
  return severity == "FATAL" || severity == "PANIC";
}

Error error_of(const PGresult* result) {
  Error error;
  error.sqlstate = field_of(result, PG_DIAG_SQLSTATE);
  error.message = field_of(result, PG_DIAG_MESSAGE_PRIMARY);
  error.detail = field_of(result, PG_DIAG_MESSAGE_DETAIL);
  error.hint = field_of(result, PG_DIAG_MESSAGE_HINT);
  error.code = is_fatal(result) ? Errc::connection_lost : classify_sqlstate(error.sqlstate);
  if (error.message.empty()) error.message = one_line(PQresultErrorMessage(result));
  return error;
}

Wire::Wire(PGconn* connection, Owner owner, int interrupt_fd)
    : connection_(connection), owner_(owner), interrupt_fd_(interrupt_fd) {
  // A caller's connection keeps the caller's receiver: libpq could not give its argument back.
  if (owned()) PQsetNoticeReceiver(connection_, receive_notice, this);
}

Wire::~Wire() {
  if (owned()) PQfinish(connection_);
}

bool Wire::usable() const { return !shut_ && PQstatus(connection_) == CONNECTION_OK; }

void Wire::shut() noexcept {
  if (std::exchange(shut_, true)) return;
  const int socket = PQsocket(connection_);
  if (socket >= 0) shutdown(socket, SHUT_RDWR);
}

void Wire::receive_notice(void* self, const PGresult* notice) {
  Wire& wire = *static_cast<Wire*>(self);
  ++wire.notices_;
  if (is_fatal(notice)) wire.last_words_ = field_of(notice, PG_DIAG_MESSAGE_PRIMARY);
  if (is_cancelled_standby_wait(notice)) wire.commit_in_doubt_ = true;
}

void Wire::forget_notices() {
  commit_in_doubt_ = false;
  heard_ = false;
  notices_ = 0;
}

Ready Wire::wait(short& events, Deadline deadline) const {
  // Bytes that TLS has decrypted and libpq has not read yet do not show on the socket.
  auto* tls = static_cast<SSL*>(PQsslStruct(connection_, "OpenSSL"));
  if (tls != nullptr && (events & POLLIN) != 0 && SSL_pending(tls) > 0) {
    events = POLLIN;
    return Ready::yes;
  }
  return wait_for_socket(PQsocket(connection_), events, deadline, interrupt_fd_);
}

bool Wire::consume_input() {
  heard_ = true;
  return PQconsumeInput(connection_) != 0;
}

Error Wire::lost() {
  std::string message = last_words_.empty() ? one_line(PQerrorMessage(connection_)) : last_words_;
  if (message.empty()) message = "the connection to the server was lost";
  shut();
  return {.code = Errc::connection_lost, .message = std::move(message)};
}

Error Wire::deadline_exceeded() {
  shut();
  return {.code = Errc::deadline_exceeded, .message = "the server did not answer before the deadline"};
}

Expected<void> Wire::flush(Deadline deadline) {
  for (;;) {
    const int left = PQflush(connection_);
    if (left == 0) return {};
    if (left < 0) return std::unexpected(lost());
    short events = POLLIN | POLLOUT;
    const Ready ready = wait(events, deadline);
    if (ready == Ready::deadline) return std::unexpected(deadline_exceeded());
    if (ready == Ready::failed) return std::unexpected(lost());
    if (events != POLLOUT && !consume_input()) return std::unexpected(lost());
  }
}

Expected<ResultHandle> Wire::next_result(Deadline deadline) {
  while (PQisBusy(connection_) != 0) {
    short events = POLLIN;
    const Ready ready = wait(events, deadline);
    if (ready == Ready::deadline) return std::unexpected(deadline_exceeded());
    // What was read before the connection ended, such as a FATAL error, is still to be parsed.
    if (ready == Ready::failed || !consume_input()) break;
  }
  ResultHandle result{PQgetResult(connection_)};
  const bool from_server = result && !field_of(result.get(), PG_DIAG_SQLSTATE).empty();
  const bool is_error = !result || PQresultStatus(result.get()) == PGRES_FATAL_ERROR;
  if (is_error && !from_server && PQstatus(connection_) != CONNECTION_OK) return std::unexpected(lost());
  return result;
}

Expected<bool> Wire::read_some(Deadline deadline) {
  short events = POLLIN;
  const Ready ready = wait(events, deadline);
  if (ready == Ready::deadline) return false;
  if (ready == Ready::failed || !consume_input()) return std::unexpected(lost());
  PQisBusy(connection_);  // parses what came, notices included
  if (!last_words_.empty()) return std::unexpected(lost());
  return true;
}

bool Wire::alive_while_idle() {
  while (usable()) {
    const Expected<bool> more = read_some(Deadline::min());
    if (more && !*more) return true;
  }
  return false;
}

}  // namespace faultline::pg
