// How a remote worker starts, or says why it does not.

#include <gmock/gmock.h>

#include "remote/fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RemoteStartTest : public RemoteTest {
 protected:
  static Expected<void> start(const LinkedOptions& options) {
    Worker worker = make_worker(options);
    worker.handle("test", [](Context&) {});
    return worker.start();
  }
};

/// Knows one key, which may work the default queue.
class OneKey : public service::Authenticator {
 public:
  [[nodiscard]] service::ServiceResult<service::Principal> authenticate(
      std::string_view bearer) const override {
    if (bearer == "good-key")
      return service::Principal{.name = "worker", .scopes = {service::Scope::work}, .queues = {{"default"}}};
    return std::unexpected(service::Problem{.code = service::Code::unauthenticated,
                                            .message = "the key is not known",
                                            .hint = "make one with `faultline keys create`"});
  }
};

TEST_F(RemoteStartTest, a_worker_has_a_database_or_a_server_and_not_both) {
  const auto neither = start({{.name = "w"}});
  ASSERT_FALSE(neither);
  EXPECT_EQ(neither.error().message, "the worker has neither a database nor a server");
  const auto both = start({{.database = database_.dsn(), .name = "w"}, "faultline://127.0.0.1:1"});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().message, "the worker has both a database and a server");
}

TEST_F(RemoteStartTest, connect_makes_a_worker_that_works_through_the_server) {
  LocalServer server{database_.dsn()};
  const JobId id = enqueue();
  WorkerOptions rest = options();
  rest.database.clear();
  Worker worker = Worker::connect(server.url(), rest);
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(RemoteStartTest, a_queue_that_does_not_exist_is_named) {
  LocalServer server{database_.dsn()};
  LinkedOptions wrong = remote(server.url());
  wrong.queues = {{}, {.queue = "mispelt"}};
  const auto started = start(wrong);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::unknown_queue);
  EXPECT_THAT(started.error().message, HasSubstr("mispelt"));
}

TEST_F(RemoteStartTest, a_key_that_is_not_good_or_not_good_enough_is_refused_at_once) {
  const OneKey keys;
  LocalServer server{database_.dsn(), {}, &keys};
  must(store_.set_queue("other", {}));
  LinkedOptions keyed = remote(server.url());

  const auto without = start(keyed);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(without.error().describe(), HasSubstr("keys create"));

  keyed.api_key = "bad-key";
  const auto bad = start(keyed);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(bad.error().describe(), Not(HasSubstr("bad-key")));

  keyed.api_key = "good-key";
  keyed.queues = {{.queue = "other"}};
  const auto elsewhere = start(keyed);
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(elsewhere.error().message, HasSubstr("other"));
}

TEST_F(RemoteStartTest, a_key_that_may_only_work_is_enough_for_everything_a_worker_does) {
  const OneKey keys;
  LocalServer server{database_.dsn(), {}, &keys};
  LinkedOptions keyed = remote(server.url());
  keyed.api_key = "good-key";
  const JobId id = enqueue({.backoff_base = ms{1}});
  Worker worker = make_worker(keyed);
  worker.handle("test", [](Context& ctx) {
    ctx.progress(0.5);
    ctx.extend(ms{60'000});
    ctx.check_fence();
    static_cast<void>(ctx.once("effect", [] { return std::string{"done"}; }));
    if (ctx.job().attempt == 1) throw std::runtime_error("once more");
  });
  must(worker.start());
  EXPECT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(RemoteStartTest, a_server_that_is_not_there_is_named) {
  std::string url;
  {
    LocalServer server{database_.dsn()};
    url = server.url();
  }
  const auto started = start(remote(url));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::unavailable);
  EXPECT_THAT(started.error().message, HasSubstr(url.substr(url.find("127"))));
}

TEST_F(RemoteStartTest, the_first_server_that_answers_is_used) {
  std::string gone;
  {
    LocalServer server{database_.dsn()};
    gone = server.url();
  }
  LocalServer server{database_.dsn()};
  const JobId id = enqueue();
  Worker worker = make_worker(remote(gone + ",127.0.0.1:" + std::to_string(server.port())));
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(RemoteStartTest, a_key_is_not_sent_in_the_clear_to_another_machine_unless_asked_for) {
  LinkedOptions keyed = remote("faultline://192.0.2.1:8001");
  keyed.api_key = "good-key";
  const auto started = start(keyed);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(started.error().describe(), HasSubstr("in the clear"));
  EXPECT_THAT(started.error().hint, HasSubstr("faultline+tls://"));
}

TEST_F(RemoteStartTest, tls_files_that_do_not_fit_are_named) {
  LinkedOptions plain = remote("faultline://127.0.0.1:1");
  plain.tls_ca = "ca.pem";
  EXPECT_THAT(start(plain).error().hint, HasSubstr("faultline+tls://"));
  LinkedOptions half = remote("faultline+tls://127.0.0.1:1");
  half.tls_cert = "cert.pem";
  EXPECT_THAT(start(half).error().message, HasSubstr("tls_key"));
  LinkedOptions missing = remote("faultline+tls://127.0.0.1:1");
  missing.tls_ca = "/nowhere/ca.pem";
  EXPECT_THAT(start(missing).error().message, HasSubstr("/nowhere/ca.pem"));
}

/// An authority, and certificates of it for the server and for a client.
class Certificates {
 public:
  Certificates() {
    openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-subj", "/CN=test authority", "-keyout", file("ca.key"), "-out", file("ca.pem")});
    write_file(dir_ / "names", "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    for (const std::string who : {"server", "client"}) {
      openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
               "/CN=" + who, "-keyout", file(who + ".key"), "-out", file(who + ".csr")});
      openssl({"x509", "-req", "-days", "2", "-in", file(who + ".csr"), "-CA", file("ca.pem"), "-CAkey",
               file("ca.key"), "-CAcreateserial", "-extfile", file("names"), "-out", file(who + ".pem")});
    }
  }
  [[nodiscard]] std::string file(const std::string& name) const { return dir_ / name; }

 private:
  static void openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    const auto result = run_process({.argv = std::move(arguments)});
    if (result.exit_code != 0) throw std::runtime_error(result.err);
  }
  ScratchDir dir_;
};

TEST_F(RemoteStartTest, over_tls_the_server_and_the_worker_know_each_other_by_certificates) {
  const Certificates files;
  LocalServer server{
      database_.dsn(),
      {.certificates = must(tls::Certificates::load({.files = {.cert = files.file("server.pem"),
                                                               .key = files.file("server.key"),
                                                               .client_ca = files.file("ca.pem")},
                                                     .log = [](const Event&) {}}))}};
  const JobId id = enqueue();
  LinkedOptions tls = remote("faultline+tls://localhost:" + std::to_string(server.port()));
  tls.tls_ca = files.file("ca.pem");
  EXPECT_EQ(start(tls).error().code, ErrorCode::unavailable) << "a worker without a certificate";
  tls.tls_cert = files.file("client.pem");
  tls.tls_key = files.file("client.key");
  Worker worker = make_worker(tls);
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

}  // namespace
}  // namespace faultline::testing
