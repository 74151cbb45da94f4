// The database is away, at the start and midway: nothing is acknowledged that is not there, and nobody has to
// help.

#include <csignal>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "pg/wire_proxy.h"
#include "private_pg/private_postgres.h"
#include "schema/migrator.h"
#include "service/fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

class ServiceTroubleTest : public ServiceTest {};

TEST_F(ServiceTroubleTest, a_lost_answer_to_a_submission_adds_its_jobs_once) {
  WireProxy proxy{database_.dsn()};
  service::ServiceOptions far = options();
  far.database = proxy.dsn();
  begin(far);
  enqueue_one();
  for (int i = 0; i < 5; ++i) {
    proxy.cut_after('S');
    EXPECT_EQ(must(enqueue({NewJob{.kind = "x"}, NewJob{.kind = "x"}})).size(), 2);
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'x'"), 10);
}

TEST_F(ServiceTroubleTest, a_network_that_swallows_everything_is_noticed_and_its_return_too) {
  WireProxy proxy{database_.dsn()};
  service::ServiceOptions far = options();
  far.database = proxy.dsn();
  far.call_timeout = ms{1'000};
  begin(far);
  enqueue_one();

  proxy.stall();
  ASSERT_TRUE(eventually([&] { return !service_->ready(); }));
  EXPECT_FALSE(service_->why_not_ready().empty());
  const auto refused = enqueue({NewJob{.kind = "never"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
  EXPECT_TRUE(refused.error().retry_after);
  Basket basket;
  const auto consumer = service_->consume(who_, "nowhere", "w", basket.deliver());
  ASSERT_FALSE(consumer);
  EXPECT_EQ(consumer.error().code, Code::unavailable);
  EXPECT_GE(log_.count("database_lost"), 1);

  proxy.resume();
  ASSERT_TRUE(eventually([&] { return service_->ready(); }));
  EXPECT_TRUE(service_->why_not_ready().empty());
  EXPECT_GE(log_.count("database_back"), 1);
  // A look may have fallen into the gap again; what is accepted is there.
  ASSERT_TRUE(eventually([&] { return enqueue({NewJob{.kind = "after"}}).has_value(); }));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'never'"), 0);
  EXPECT_GE(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'after'"), 1);
}

TEST_F(ServiceTroubleTest,
       locked_tables_and_a_full_disk_make_it_not_ready_and_are_not_called_a_lost_database) {
  begin(options());
  ASSERT_TRUE(eventually([&] { return service_->ready(); }));
  auto other = database_.connect();
  must(other.exec_script("BEGIN; LOCK TABLE faultline.jobs IN EXCLUSIVE MODE", soon()));

  ASSERT_TRUE(eventually([&] { return !service_->ready(); }));
  EXPECT_THAT(service_->why_not_ready(), ::testing::HasSubstr("lock"));
  ASSERT_TRUE(eventually([&] { return log_.count("database_locked") > 0; }));
  EXPECT_EQ(log_.count("database_lost"), 0);
  must(other.exec_script("ROLLBACK", soon()));
  ASSERT_TRUE(eventually([&] { return service_->ready(); }));
  EXPECT_EQ(log_.count("database_back"), 1);

  // As on a full disk: temporary files find no room. Sessions take a new setting when they begin.
  script("DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET temp_file_limit = 0', current_database()); END$$");
  script(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
      " AND pid <> pg_backend_pid()");
  ASSERT_TRUE(eventually([&] {
    return !service_->ready() && log_.text().find("temp_file_limit") != std::string::npos;
  })) << log_.text();
}

TEST_F(ServiceTroubleTest, a_database_without_the_schema_is_not_ready_until_it_has_it) {
  TestDatabase empty{Template::empty};
  service::ServiceOptions early = options();
  early.database = empty.dsn();
  auto service = service::Service::start(early);
  ASSERT_TRUE(eventually([&] { return log_.count("database_lost") > 0; }));
  EXPECT_FALSE(service->ready());
  EXPECT_THAT(service->why_not_ready(), ::testing::HasSubstr("schema"));

  auto connection = empty.connect();
  must(schema::migrate(connection, schema::MigrateOptions{}, soon()));

  EXPECT_TRUE(eventually([&] { return service->ready(); }));
}

TEST_F(ServiceTroubleTest, what_it_says_names_no_address_or_role) {
  service::ServiceOptions wrong = options();
  wrong.database = "host=/nowhere/secret-place user=secret-role password=secret-word dbname=x";
  auto service = service::Service::start(wrong);
  ASSERT_TRUE(eventually([&] { return log_.count("database_lost") > 0; }));

  EXPECT_FALSE(service->ready());
  EXPECT_EQ(service->why_not_ready().find("secret"), std::string::npos);
  const auto refused = answer_of<std::vector<Submission>>(
      [&](auto done) { service->enqueue(who_, {NewJob{.kind = "x"}}, std::move(done)); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
  EXPECT_EQ((refused.error().message + refused.error().hint).find("secret"), std::string::npos);
}

/// A server of the test's own, which it may stop.
class ServiceRestartTest : public ::testing::Test {
 protected:
  [[nodiscard]] PrivatePostgresOptions server_options() const {
    PrivatePostgresOptions options;
    options.data_dir = scratch_ / "data";
    options.durable = false;  // the server crashes, the machine does not
    return options;
  }
  void crash(PrivatePostgres& server) {
    ASSERT_EQ(::kill(server.postmaster_pid(), SIGQUIT), 0);
    ASSERT_TRUE(eventually([&] { return server.postmaster_pid() == 0; }));
  }
  service::ServiceResult<std::vector<Submission>> enqueue(service::Service& service) {
    return answer_of<std::vector<Submission>>([&](auto done) {
      service.enqueue(service::Principal::anybody(), {NewJob{.kind = "x"}}, std::move(done));
    });
  }

  ScratchDir scratch_;
  Log log_;
};

TEST_F(ServiceRestartTest, it_starts_without_its_database_and_goes_on_after_a_crash) {
  auto server = start_provided_server(server_options());
  const std::string dsn = server.dsn();
  {
    auto connection = connect(dsn);
    must(schema::migrate(connection, schema::MigrateOptions{}, soon()));
    // What a store has committed survives a crash of the server, and with it all that came before.
    must(must(Store::open({.database = dsn})).set_queue("default", {}));
  }
  crash(server);
  const auto service = service::Service::start(
      {.database = dsn, .call_timeout = std::chrono::milliseconds{2'000}, .log = log_.sink()});
  EXPECT_FALSE(service->ready());
  const auto refused = enqueue(*service);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, service::Code::unavailable);
  ASSERT_TRUE(eventually([&] { return log_.count("database_lost") > 0; }));

  must(server.ensure_running());
  ASSERT_TRUE(eventually([&] { return service->ready(); })) << log_.text();
  Basket basket;
  const auto consumer =
      must(service->consume(service::Principal::anybody(), "default", "w", basket.deliver()));
  consumer->grant(1'000'000, 1);
  std::set<JobId> acknowledged;
  for (int i = 0; i < 20; ++i) {
    if (auto answer = enqueue(*service)) acknowledged.insert(answer->at(0).job);
  }
  ASSERT_TRUE(basket.reaches(1));

  // Midway, with calls in flight.
  std::atomic<bool> enough{false};
  std::mutex mutex;
  std::jthread producer{[&] {
    while (!enough) {
      auto answer = enqueue(*service);
      const std::lock_guard lock{mutex};
      if (answer) acknowledged.insert(answer->at(0).job);
    }
  }};
  crash(server);
  must(server.ensure_running());
  std::size_t before = 0;
  {
    const std::lock_guard lock{mutex};
    before = acknowledged.size();
  }
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock{mutex};
    return acknowledged.size() > before + 20;
  }));
  enough = true;
  producer.join();

  // Everything that was acknowledged is there, and the consumer gets jobs again without being told.
  auto store = must(Store::open({.database = dsn}));
  for (const JobId& id : acknowledged) EXPECT_TRUE(must(store.job(id)).has_value());
  const std::size_t given = basket.count();
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(enqueue(*service));
    return basket.count() > given;
  }));
}

}  // namespace
}  // namespace faultline::testing
