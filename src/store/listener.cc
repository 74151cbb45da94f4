#include "store/listener.h"

#include <chrono>
#include <random>

#include "pg/backoff.h"
#include "store/announce.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBackoffMin{100};
constexpr milliseconds kBackoffMax{1'000};
/// After this much silence the server is asked whether it is still there.
constexpr milliseconds kSilenceMax{30'000};
/// How long it may take to connect, and to answer.
constexpr milliseconds kAnswerMax{10'000};

constexpr pg::Statement kPing{"", "SELECT 1"};

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

}  // namespace

Listener::Listener(std::string database, std::string application_name, Callbacks callbacks)
    : database_(std::move(database)),
      application_name_(std::move(application_name)),
      callbacks_(std::move(callbacks)),
      thread_([this] { run(); }) {}

Listener::~Listener() {
  interrupt_.fire();
  thread_.join();
}

void Listener::run() {
  const pg::ConnectOptions options{
      .dsn = database_, .application_name = application_name_, .interrupt_fd = interrupt_.fd()};
  std::random_device seed;
  pg::Backoff backoff{kBackoffMin, kBackoffMax, seed()};
  bool pooled = false;
  do {
    auto connection = pg::Connection::open(options, in(kAnswerMax));
    if (!connection) continue;
    pooled = connection->behind_pooler();
    if (pooled || !connection->listen(Announcer::kChannel, in(kAnswerMax))) continue;
    callbacks_.connected();
    hear(*connection);
    backoff = pg::Backoff{kBackoffMin, kBackoffMax, seed()};
  } while (!interrupt_.wait(pooled ? Deadline::max() : in(backoff.next())));
}

void Listener::hear(pg::Connection& connection) {
  while (!interrupt_.fired()) {
    const auto heard = connection.wait_for_notifications(in(kSilenceMax));
    if (!heard) return;
    for (const pg::Notification& notification : *heard) callbacks_.announced(notification.payload);
    if (heard->empty() && !interrupt_.fired() && !connection.exec(kPing, {}, in(kAnswerMax))) return;
  }
}

}  // namespace faultline::store
