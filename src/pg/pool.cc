#include "pg/pool.h"

#include <algorithm>
#include <utility>

#include "pg/backoff.h"
#include "pg/check.h"

namespace faultline::pg {

namespace {

Pool::Options interrupted_by(const Interrupt& interrupt, Pool::Options options) {
  options.connect.interrupt_fd = interrupt.fd();
  return options;
}

Error too_late() {
  return {.code = Errc::deadline_exceeded,
          .message = "all connections of the pool were busy until the deadline"};
}

}  // namespace

Pool::Pool(Options options)
    : options_(interrupted_by(interrupt_, std::move(options))),
      seeds_(options_.jitter_seed ? *options_.jitter_seed : std::random_device{}()) {
  check(options_.connections_max > 0, "a pool has at least one connection");
  general_.limit = options_.connections_max;
  heartbeat_.limit = 1;
}

Pool::~Pool() {
  check(general_.open == general_.idle.size() && heartbeat_.open == heartbeat_.idle.size(),
        "a pool outlives the connections that it lends");
}

Expected<Pool::Borrowed> Pool::acquire(Deadline deadline, Partition partition) {
  Reserve& from = reserve(partition);
  auto taken = take(from, deadline);
  if (!taken) return std::unexpected(std::move(taken.error()));
  if (*taken && (*taken)->alive_while_idle()) return Borrowed{*this, partition, std::move(**taken)};
  taken->reset();
  auto connection = connect(from, deadline);
  if (!connection) return std::unexpected(std::move(connection.error()));
  return Borrowed{*this, partition, std::move(*connection)};
}

Expected<std::optional<Connection>> Pool::take(Reserve& reserve, Deadline deadline) {
  std::unique_lock lock{mutex_};
  const bool free = reserve.changed.wait_until(
      lock, deadline, [&] { return given_up_ || !reserve.idle.empty() || reserve.open < reserve.limit; });
  if (!free || given_up_) return std::unexpected(too_late());
  if (reserve.idle.empty()) {
    ++reserve.open;
    return std::nullopt;
  }
  std::optional<Connection> connection{std::move(reserve.idle.back())};
  reserve.idle.pop_back();
  return connection;
}

Expected<Connection> Pool::connect(Reserve& reserve, Deadline deadline) {
  std::optional<Error> earlier;
  {
    const std::lock_guard lock{mutex_};
    earlier = last_error_;
  }
  for (;;) {
    if (earlier) {
      std::unique_lock lock{mutex_};
      // Meanwhile another caller may return a connection that works, or find that the server answers again.
      reserve.changed.wait_until(lock, std::min(next_try_, deadline), [&] {
        return given_up_ || !reserve.idle.empty() || Deadline::clock::now() >= next_try_;
      });
      if (!reserve.idle.empty() && !given_up_) {
        Connection returned = std::move(reserve.idle.back());
        reserve.idle.pop_back();
        lock.unlock();
        give_up_slot(reserve);  // ours, or that of the returned one if it is dead
        if (returned.alive_while_idle()) return returned;
        continue;
      }
      const auto now = Deadline::clock::now();
      if (now >= deadline || given_up_) {
        if (given_up_) earlier = too_late();
        lock.unlock();
        give_up_slot(reserve);
        return std::unexpected(std::move(*earlier));
      }
      if (now < next_try_) continue;
      // One tries for all; if it hangs, the next one tries when this time is over.
      next_try_ = now + options_.backoff_max;
    }
    auto connection = Connection::open(options_.connect, deadline);
    if (connection) {
      server_answers();
      return connection;
    }
    // A last try that the deadline cut short says less than the ones before it.
    if (connection.error().code == Errc::deadline_exceeded && earlier) connection = std::unexpected(*earlier);
    if (!connection.error().retryable()) {
      server_answers();
      give_up_slot(reserve);
      return connection;
    }
    earlier = connection.error();
    const std::lock_guard lock{mutex_};
    if (!backoff_) backoff_.emplace(options_.backoff_min, options_.backoff_max, seeds_());
    last_error_ = earlier;
    next_try_ = Deadline::clock::now() + backoff_->next();
  }
}

void Pool::give_up() {
  {
    const std::lock_guard lock{mutex_};
    given_up_ = true;
  }
  interrupt_.fire();
  general_.changed.notify_all();
  heartbeat_.changed.notify_all();
}

void Pool::server_answers() {
  {
    const std::lock_guard lock{mutex_};
    if (!backoff_) return;
    backoff_.reset();
    last_error_.reset();
    next_try_ = {};
  }
  general_.changed.notify_all();
  heartbeat_.changed.notify_all();
}

void Pool::give_up_slot(Reserve& reserve) noexcept {
  {
    const std::lock_guard lock{mutex_};
    --reserve.open;
  }
  reserve.changed.notify_all();
}

void Pool::give_back(Partition partition, Connection connection) noexcept {
  Reserve& to = reserve(partition);
  if (!connection.usable() || !connection.idle()) {
    {
      const Connection closed = std::move(connection);
    }
    give_up_slot(to);
    return;
  }
  {
    const std::lock_guard lock{mutex_};
    to.idle.push_back(std::move(connection));
  }
  // All, because some wait for an idle connection and some for the right to open one.
  to.changed.notify_all();
}

Pool::Borrowed::Borrowed(Borrowed&& other) noexcept
    : pool_(other.pool_),
      partition_(other.partition_),
      connection_(std::exchange(other.connection_, std::nullopt)) {}

Pool::Borrowed& Pool::Borrowed::operator=(Borrowed&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = other.pool_;
  partition_ = other.partition_;
  connection_ = std::exchange(other.connection_, std::nullopt);
  return *this;
}

Pool::Borrowed::~Borrowed() { release(); }

void Pool::Borrowed::release() noexcept {
  if (auto connection = std::exchange(connection_, std::nullopt))
    pool_->give_back(partition_, std::move(*connection));
}

}  // namespace faultline::pg
