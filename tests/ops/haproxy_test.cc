// ops/haproxy/haproxy.cfg as it is shipped, in front of two replicas, one of which goes.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "faultline/worker.h"
#include "server/serve_process.h"

namespace faultline::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A socket that listens on a port that nobody else has, for a child process to inherit.
class InheritedListener {
 public:
  InheritedListener() : socket_{::socket(AF_INET, SOCK_STREAM, 0)} {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (socket_ < 0 || ::bind(socket_, generic, size) != 0 || ::listen(socket_, 128) != 0 ||
        ::getsockname(socket_, generic, &size) != 0)
      throw std::runtime_error("cannot listen");
    port_ = ntohs(address.sin_port);
  }
  InheritedListener(const InheritedListener&) = delete;
  InheritedListener& operator=(const InheritedListener&) = delete;
  ~InheritedListener() { leave(); }

  /// Not listening here any more; the child process does.
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  [[nodiscard]] std::string for_haproxy() const { return "fd@" + std::to_string(socket_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

std::string grpc_address(const ServeProcess& replica) {
  return replica.url().substr(std::string_view{"faultline://"}.size());
}

class HaproxyTest : public ::testing::Test {
 protected:
  static constexpr int kJobs = 120;

  HaproxyTest() {
    a_.wait_until_ready();
    b_.wait_until_ready();
    haproxy_.emplace(ProcessOptions{
        .argv = {"/usr/sbin/haproxy", "-db", "-f", FAULTLINE_SOURCE_DIR "/ops/haproxy/haproxy.cfg"},
        .environment = {{"FAULTLINE_HTTP_BIND", http_.for_haproxy()},
                        {"FAULTLINE_GRPC_BIND", grpc_.for_haproxy()},
                        {"FAULTLINE_A_HTTP", "127.0.0.1:" + std::to_string(a_.http_port())},
                        {"FAULTLINE_A_GRPC", grpc_address(a_)},
                        {"FAULTLINE_B_HTTP", "127.0.0.1:" + std::to_string(b_.http_port())},
                        {"FAULTLINE_B_GRPC", grpc_address(b_)}}});
    http_.leave();
    grpc_.leave();
    if (!eventually([&] { return http_get(http_.port(), "/ready").status == 200; }))
      throw std::runtime_error("nobody answers through haproxy:\n" + said_by_haproxy());
  }

  [[nodiscard]] std::string said_by_haproxy() const { return haproxy_->out() + haproxy_->err(); }

  /// Works through haproxy over gRPC.
  void start_worker() {
    worker_.handle("k", [](Context&) {});
    const auto started = worker_.start();
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }

  /// Adds one job, again and again with the same key until there is a yes; the answers before it go to
  /// `failures_`.
  void add(int number) {
    const nlohmann::json job{{"kind", "k"}, {"payload", number}, {"lease_ttl_ms", 5'000}};
    const bool added = eventually([&] {
      const HttpResponse answer =
          http_post(http_.port(), "/v1/jobs", job, {{"Idempotency-Key", std::to_string(number)}});
      if (answer.status != 200 && answer.status != 201) {
        failures_.push_back(answer.status);
        return false;
      }
      accepted_.insert(answer.json().at("job_id").get<std::string>());
      return true;
    });
    ASSERT_TRUE(added) << "job " << number << "\n" << said_by_haproxy();
  }
  void add_from(int first, int end) {
    for (int number = first; number < end; ++number) ASSERT_NO_FATAL_FAILURE(add(number));
  }

  std::string ask(const std::string& sql) {
    auto connection = database_.connect();
    return query_text(connection, sql);
  }
  /// What is in the ledger of ended attempts: jobs that succeeded, and successes.
  void expect_every_job_committed_once() {
    EXPECT_EQ(accepted_.size(), std::size_t{kJobs});
    ASSERT_TRUE(eventually([&] {
      return ask("SELECT count(*)::text FROM faultline.jobs WHERE queue <> ''") == "0";
    })) << said_by_haproxy();
    EXPECT_EQ(ask("SELECT count(DISTINCT job_id)::text || ' jobs, ' || count(*)::text || ' successes' "
                  "FROM faultline.ledger WHERE outcome = 'succeeded'"),
              "120 jobs, 120 successes");
  }

  TestDatabase database_;
  ServeProcess a_{database_.dsn(), {"--drain-delay", "300s"}};
  ServeProcess b_{database_.dsn()};
  InheritedListener http_;
  InheritedListener grpc_;
  std::optional<ChildProcess> haproxy_;
  Worker worker_ =
      Worker::connect("faultline://127.0.0.1:" + std::to_string(grpc_.port()), {.log = [](const Event&) {}});
  std::set<std::string> accepted_;
  std::vector<int> failures_;
};

TEST_F(HaproxyTest, a_killed_replica_costs_no_job_and_no_request_without_an_error_to_retry_on) {
  start_worker();
  add_from(0, kJobs / 3);

  std::jthread killer{[&] { a_.process().send(SIGKILL); }};
  add_from(kJobs / 3, kJobs);

  expect_every_job_committed_once();
  for (const int status : failures_) EXPECT_THAT(status, AnyOf(0, 502, 503, 504));
  EXPECT_TRUE(eventually([&] {
    return said_by_haproxy().contains("http_replicas/a is DOWN") &&
           said_by_haproxy().contains("grpc_replicas/a is DOWN");
  })) << said_by_haproxy();
}

TEST_F(HaproxyTest, a_replica_that_drains_is_left_alone_before_it_closes_and_no_request_fails) {
  start_worker();
  add_from(0, kJobs / 3);

  a_.process().send(SIGTERM);
  add_from(kJobs / 3, 2 * kJobs / 3);
  // It still answers, and says that it drains: on both wires.
  ASSERT_TRUE(eventually([&] {
    return said_by_haproxy().contains("http_replicas/a is DOWN, reason: Layer7 wrong status, code: 503") &&
           said_by_haproxy().contains("grpc_replicas/a is DOWN, reason: Layer7 invalid response");
  })) << said_by_haproxy();
  add_from(2 * kJobs / 3, kJobs);

  expect_every_job_committed_once();
  EXPECT_THAT(failures_, IsEmpty());
  const ProcessResult result = a_.terminate();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace faultline::testing
