#include "pg/pool.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "pg/dsn_parts.h"
#include "support/database.h"
#include "support/process.h"

namespace faultline::pg {
namespace {

using testing::eventually;
using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

constexpr Statement kOne{"one", "SELECT 1"};

class PoolTest : public ::testing::Test {
 protected:
  [[nodiscard]] Pool::Options options(std::size_t connections_max) const {
    return {.connect = {.dsn = database_.dsn()},
            .connections_max = connections_max,
            .backoff_min = std::chrono::milliseconds{1},
            .backoff_max = std::chrono::milliseconds{10},
            .jitter_seed = 1};
  }

  static Deadline in_a_moment() { return Deadline::clock::now() + std::chrono::milliseconds{30}; }

  void terminate(int pid) {
    must(observer_.exec({"", "SELECT pg_terminate_backend($1, 60000)"}, Params{}.add(pid), soon()));
  }

  TestDatabase database_{Template::empty};
  Connection observer_ = database_.connect();
};

TEST_F(PoolTest, lends_the_same_connection_again) {
  Pool pool{options(4)};
  const int first = must(pool.acquire(soon()))->backend_pid();
  EXPECT_EQ(must(pool.acquire(soon()))->backend_pid(), first);
}

TEST_F(PoolTest, says_at_the_deadline_that_all_connections_are_busy) {
  Pool pool{options(2)};
  const auto one = must(pool.acquire(soon()));
  {
    const auto two = must(pool.acquire(soon()));
    const auto three = pool.acquire(in_a_moment());
    ASSERT_FALSE(three.has_value());
    EXPECT_EQ(three.error().code, Errc::deadline_exceeded);
  }
  EXPECT_TRUE(pool.acquire(soon()).has_value());
}

TEST_F(PoolTest, gives_the_heartbeat_lane_a_connection_when_all_others_are_busy) {
  Pool pool{options(1)};
  const auto busy = must(pool.acquire(soon()));
  auto heartbeat = must(pool.acquire(soon(), Pool::Partition::heartbeat));
  EXPECT_TRUE(heartbeat->exec(kOne, {}, soon()).has_value());
}

TEST_F(PoolTest, never_gives_the_heartbeat_connection_to_others) {
  Pool pool{options(1)};
  {
    const auto opened = must(pool.acquire(soon(), Pool::Partition::heartbeat));
  }
  const auto busy = must(pool.acquire(soon()));
  EXPECT_EQ(pool.acquire(in_a_moment()).error().code, Errc::deadline_exceeded);
}

TEST_F(PoolTest, never_gives_a_general_connection_to_a_second_heartbeat) {
  Pool pool{options(2)};
  {
    const auto opened = must(pool.acquire(soon()));
  }
  const auto heartbeat = must(pool.acquire(soon(), Pool::Partition::heartbeat));
  EXPECT_EQ(pool.acquire(in_a_moment(), Pool::Partition::heartbeat).error().code, Errc::deadline_exceeded);
}

TEST_F(PoolTest, a_waiting_caller_gets_the_connection_that_is_returned) {
  Pool pool{options(1)};
  std::optional<Pool::Borrowed> held{must(pool.acquire(soon()))};
  const int pid = (*held)->backend_pid();
  int waited_for = 0;
  {
    std::jthread waiter{[&] { waited_for = must(pool.acquire(soon()))->backend_pid(); }};
    held.reset();
  }
  EXPECT_EQ(waited_for, pid);
}

TEST_F(PoolTest, replaces_a_connection_that_the_server_ended_while_it_was_idle) {
  Pool pool{options(1)};
  const int first = must(pool.acquire(soon()))->backend_pid();
  terminate(first);
  auto replaced = must(pool.acquire(soon()));
  EXPECT_NE(replaced->backend_pid(), first);
  EXPECT_TRUE(replaced->exec(kOne, {}, soon()).has_value());
}

TEST_F(PoolTest, replaces_a_connection_that_broke_while_it_was_lent) {
  Pool pool{options(1)};
  int first = 0;
  {
    auto lent = must(pool.acquire(soon()));
    first = lent->backend_pid();
    EXPECT_FALSE(lent->exec({"", "SELECT pg_terminate_backend(pg_backend_pid())"}, {}, soon()).has_value());
  }
  EXPECT_NE(must(pool.acquire(soon()))->backend_pid(), first);
}

TEST_F(PoolTest, closes_a_connection_that_is_returned_inside_a_transaction) {
  Pool pool{options(1)};
  int first = 0;
  {
    auto lent = must(pool.acquire(soon()));
    first = lent->backend_pid();
    must(lent->begin(soon()));
  }
  auto next = must(pool.acquire(soon()));
  EXPECT_NE(next->backend_pid(), first);
  EXPECT_FALSE(next->in_transaction());
}

TEST_F(PoolTest, a_borrowed_connection_moves) {
  Pool pool{options(1)};
  auto first = must(pool.acquire(soon()));
  Pool::Borrowed second = std::move(first);
  EXPECT_TRUE((*second).exec(kOne, {}, soon()).has_value());
  second = must(pool.acquire(soon(), Pool::Partition::heartbeat));
  EXPECT_TRUE(pool.acquire(soon()).has_value());
}

TEST_F(PoolTest, many_threads_share_a_few_connections) {
  Pool pool{options(3)};
  std::atomic<int> done = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 25; ++n) {
          if (must(pool.acquire(soon()))->exec(kOne, {}, soon())) ++done;
        }
      });
    }
  }
  EXPECT_EQ(done, 200);
  constexpr Statement kSessions{
      "",
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'faultline'"};
  EXPECT_LE(must(observer_.exec(kSessions, {}, soon())).rows(), 3);
}

TEST_F(PoolTest, goes_on_connecting_until_the_server_is_there) {
  testing::DsnParts parts{database_.dsn()};
  const std::filesystem::path real = parts["host"];
  const std::filesystem::path link = std::filesystem::temp_directory_path() / (database_.name() + "_pool");
  parts["host"] = link.string();
  Pool::Options late = options(1);
  late.connect.dsn = parts.dsn();
  Pool pool{late};
  const Deadline after_some_tries = Deadline::clock::now() + std::chrono::milliseconds{500};
  EXPECT_EQ(pool.acquire(after_some_tries).error().code, Errc::cannot_connect);
  Expected<int> pid = 0;
  {
    std::jthread waiter{[&] {
      auto lent = pool.acquire(soon());
      pid = lent ? Expected<int>{(*lent)->backend_pid()} : std::unexpected(lent.error());
    }};
    std::filesystem::create_directory_symlink(real, link);
  }
  std::filesystem::remove(link);
  EXPECT_GT(must(pid), 0);
}

/// Accepts connections, and ends each a moment later. Knows how many there were, and how many at once.
class Refuser {
 public:
  Refuser() {
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_, 64) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no socket");
    port_ = ntohs(address.sin_port);
    acceptor_ = std::jthread{[this] { accept_all(); }};
  }
  ~Refuser() {
    ::shutdown(socket_, SHUT_RDWR);
    acceptor_.join();
    ::close(socket_);
  }
  [[nodiscard]] std::string dsn() const {
    return "host=127.0.0.1 port=" + std::to_string(port_) +
           " sslmode=disable gssencmode=disable dbname=x user=x";
  }
  std::atomic<int> accepted{0};
  std::atomic<int> at_once_max{0};
  std::atomic<int> open{0};

 private:
  void accept_all() {
    std::vector<std::jthread> held;
    for (;;) {
      const int client = ::accept(socket_, nullptr, nullptr);
      if (client < 0) return;
      ++accepted;
      at_once_max = std::max(at_once_max.load(), ++open);
      held.emplace_back([this, client] {
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        --open;
        ::close(client);
      });
    }
  }

  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
  std::jthread acceptor_;
};

// However many wait: a server that starts has better things to do than to refuse.
TEST_F(PoolTest, one_caller_tries_for_all_while_the_server_cannot_be_reached) {
  Refuser refuser;
  Pool::Options refused = options(8);
  refused.connect.dsn = refuser.dsn();
  refused.backoff_max = std::chrono::milliseconds{2'000};
  Pool pool{refused};
  EXPECT_FALSE(pool.acquire(in_a_moment()));
  // The last try may have been given up before it was refused.
  ASSERT_TRUE(eventually([&] { return refuser.open == 0; }));
  const Deadline later = Deadline::clock::now() + std::chrono::milliseconds{300};
  refuser.at_once_max = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i)
      callers.emplace_back([&] { EXPECT_EQ(pool.acquire(later).error().code, Errc::cannot_connect); });
  }
  EXPECT_GT(refuser.accepted, 1);
  EXPECT_EQ(refuser.at_once_max, 1);
}

TEST_F(PoolTest, does_not_wait_for_what_waiting_cannot_cure) {
  testing::DsnParts parts{database_.dsn()};
  parts["dbname"] = "no_such_database";
  Pool::Options wrong = options(1);
  wrong.connect.dsn = parts.dsn();
  Pool pool{wrong};
  const auto refused = pool.acquire(Deadline::max());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::cannot_connect);
  EXPECT_EQ(refused.error().sqlstate, "3D000");
}

}  // namespace
}  // namespace faultline::pg
