#pragma once

#include <memory>
#include <string>

#include <libpq-fe.h>

#include "faultline/time.h"
#include "pg/error.h"
#include "pg/result.h"

namespace faultline::pg {

using ResultHandle = std::unique_ptr<PGresult, detail::ResultDeleter>;

enum class Ready { yes, deadline, failed };

/// Waits until the socket has one of poll()'s `events`, or the deadline; leaves those that came. A descriptor
/// `interrupt_fd` that becomes readable is as good as the deadline.
[[nodiscard]] Ready wait_for_socket(int socket, short& events, Deadline deadline, int interrupt_fd = -1);

/// libpq's message on one line.
[[nodiscard]] std::string one_line(const char* text);

/// The error that a result carries.
[[nodiscard]] Error error_of(const PGresult* result);
/// FATAL or PANIC: the server ends the connection with it.
[[nodiscard]] bool is_fatal(const PGresult* result);

/// A libpq connection whose socket is only ever waited for until a deadline.
/// Errors are connection_lost and deadline_exceeded; after either the socket is shut, so that bytes
/// still in libpq's buffer, a commit among them, can no longer reach the server. Not thread-safe.
class Wire {
 public:
  enum class Owner { self, caller };

  Wire(PGconn* connection, Owner owner, int interrupt_fd = -1);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  [[nodiscard]] PGconn* get() const { return connection_; }
  [[nodiscard]] bool usable() const;
  [[nodiscard]] bool owned() const { return owner_ == Owner::self; }
  void shut() noexcept;

  /// Hands everything in libpq's buffer to the socket, and reads meanwhile so that neither side blocks.
  [[nodiscard]] Expected<void> flush(Deadline deadline);
  /// As PQgetResult: null at the end of a command. A server's FATAL error comes as a result.
  [[nodiscard]] Expected<ResultHandle> next_result(Deadline deadline);
  /// Waits for and reads more input; false at the deadline, which then is no error.
  [[nodiscard]] Expected<bool> read_some(Deadline deadline);
  /// Notices without a round trip that the server closed the connection while it was idle.
  [[nodiscard]] bool alive_while_idle();

  /// Shuts the socket and says why, from libpq's words.
  [[nodiscard]] Error lost();

  /// Notices of the server since the last `forget_notices()`.
  void forget_notices();
  /// The server warned that a commit did not wait for its standby.
  [[nodiscard]] bool commit_in_doubt() const { return commit_in_doubt_; }

  /// For COPY, during which the server says nothing but notices unless it failed: whether it said
  /// anything else since the last `forget_notices()`.
  [[nodiscard]] bool heard_more_than_notices() const { return heard_ && notices_ == 0; }

 private:
  static void receive_notice(void* self, const PGresult* notice);
  [[nodiscard]] Ready wait(short& events, Deadline deadline) const;
  [[nodiscard]] bool consume_input();
  [[nodiscard]] Error deadline_exceeded();

  PGconn* connection_;
  Owner owner_;
  int interrupt_fd_;
  bool shut_ = false;
  bool commit_in_doubt_ = false;
  bool heard_ = false;
  std::uint64_t notices_ = 0;
  std::string last_words_;  // a FATAL error that came while no statement ran
};

}  // namespace faultline::pg
