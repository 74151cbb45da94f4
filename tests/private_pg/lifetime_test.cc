// The life of the server: started, shared, adopted, recovered, stopped.

#include <thread>

#include "fixture.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using StopOutcome = PrivatePostgres::StopOutcome;

TEST(PrivatePostgresTest, starts_from_nothing_on_a_unix_socket_only) {
  const ScratchDir scratch;

  auto server = must(PrivatePostgres::start(quick_options(scratch / "not/yet/there")));

  EXPECT_TRUE(server.started_here());
  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT current_database()::text"), "faultline");
  EXPECT_EQ(query_text(connection, "SELECT current_setting('listen_addresses')"), "");
  EXPECT_EQ(query_text(connection, "SELECT current_setting('server_encoding')"), "UTF8");
  EXPECT_EQ(query_text(connection, "SELECT current_setting('data_checksums')"), "on");
}

TEST(PrivatePostgresTest, is_durable_unless_told_otherwise) {
  const ScratchDir scratch;
  provide_private_server(scratch / "data");
  PrivatePostgresOptions options;
  options.data_dir = scratch / "data";

  auto server = must(PrivatePostgres::start(options));

  auto connection = connect(server.dsn());
  for (const std::string setting : {"fsync", "full_page_writes", "synchronous_commit"})
    EXPECT_EQ(query_text(connection, "SELECT current_setting('" + setting + "')"), "on") << setting;
}

TEST(PrivatePostgresTest, a_clean_stop_leaves_no_process_and_no_pid_file) {
  const ScratchDir scratch;
  auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  ASSERT_FALSE(processes_in(scratch.path()).empty());

  const auto outcome = must(server.stop());

  EXPECT_EQ(outcome, StopOutcome::stopped);
  EXPECT_EQ(server.postmaster_pid(), 0);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
  EXPECT_FALSE(fs::exists(scratch / "data/pgdata/postmaster.pid"));
  EXPECT_TRUE(fs::is_empty(scratch / "data/socket"));
}

TEST(PrivatePostgresTest, its_destructor_stops_the_server) {
  const ScratchDir scratch;
  {
    const auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  }
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
}

TEST(PrivatePostgresTest, what_was_written_is_there_after_a_restart) {
  const ScratchDir scratch;
  {
    auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
    auto connection = connect(server.dsn());
    must(connection.exec_script("CREATE TABLE kept AS SELECT 'treasure'::text AS what", soon()));
  }
  auto server = must(PrivatePostgres::start(quick_options(scratch / "data")));

  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT what FROM kept"), "treasure");
}

TEST(PrivatePostgresTest, a_second_process_shares_the_server_and_the_last_to_leave_stops_it) {
  const ScratchDir scratch;
  auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  const pid_t postmaster = server.postmaster_pid();
  OtherUser other{scratch / "data"};
  const auto report = other.ready();
  EXPECT_EQ(report.postmaster_pid, postmaster);
  EXPECT_FALSE(report.started_here);
  EXPECT_EQ(report.dsn, server.dsn());

  EXPECT_EQ(must(server.stop()), StopOutcome::still_used);
  EXPECT_TRUE(alive(postmaster));

  other.process().send(SIGTERM);
  EXPECT_EQ(other.process().wait().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
}

TEST(PrivatePostgresTest, processes_that_start_at_the_same_moment_get_one_server) {
  const ScratchDir scratch;
  const std::string barrier = scratch / "go";
  std::vector<std::unique_ptr<OtherUser>> users;
  for (int i = 0; i < 4; ++i)
    users.push_back(std::make_unique<OtherUser>(scratch / "data", std::nullopt, barrier));
  for (const auto& user : users)
    ASSERT_TRUE(eventually([&] { return user->process().out().starts_with("waiting"); }));

  write_file(barrier, "");

  int starters = 0;
  const pid_t postmaster = users.front()->ready().postmaster_pid;
  for (const auto& user : users) {
    const auto report = user->ready();
    EXPECT_EQ(report.postmaster_pid, postmaster);
    starters += report.started_here ? 1 : 0;
  }
  EXPECT_EQ(starters, 1);
  for (const auto& user : users) user->process().send(SIGTERM);
  for (const auto& user : users) EXPECT_EQ(user->process().wait().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
}

TEST(PrivatePostgresTest, a_server_whose_starter_was_killed_goes_on_and_is_adopted) {
  const ScratchDir scratch;
  provide_private_server(scratch / "data");
  OtherUser starter{scratch / "data"};
  const auto report = starter.ready();
  starter.process().send(SIGKILL);
  EXPECT_EQ(starter.process().wait().signal, SIGKILL);
  EXPECT_TRUE(alive(report.postmaster_pid));

  auto server = must(PrivatePostgres::start(quick_options(scratch / "data")));

  EXPECT_FALSE(server.started_here());
  EXPECT_EQ(server.postmaster_pid(), report.postmaster_pid);
  EXPECT_EQ(must(server.stop()), StopOutcome::stopped);
}

TEST(PrivatePostgresTest, a_durable_commit_survives_the_kill_of_the_postmaster) {
  const ScratchDir scratch;
  provide_private_server(scratch / "data");
  PrivatePostgresOptions options;
  options.data_dir = scratch / "data";
  auto server = must(PrivatePostgres::start(options));
  const std::string dsn = server.dsn();
  {
    auto connection = connect(dsn);
    must(connection.exec_script("CREATE TABLE kept AS SELECT 'treasure'::text AS what", soon()));
  }
  const pid_t before = server.postmaster_pid();
  ::kill(before, SIGKILL);
  ASSERT_TRUE(eventually([&] { return server.postmaster_pid() == 0; }));

  must(server.ensure_running());

  EXPECT_NE(server.postmaster_pid(), before);
  EXPECT_EQ(server.dsn(), dsn);
  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT what FROM kept"), "treasure");
}

TEST(PrivatePostgresTest, a_busy_backend_of_a_killed_postmaster_does_not_block_the_next_server) {
  const ScratchDir scratch;
  auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  std::jthread busy{[dsn = server.dsn()] {
    auto connection = connect(dsn);
    (void)connection.exec_script("DO $$ BEGIN LOOP END LOOP; END $$", soon());
  }};
  auto watch = connect(server.dsn());
  const std::string busy_pid =
      "SELECT coalesce(max(pid), 0)::text FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'";
  ASSERT_TRUE(eventually([&] { return query_text(watch, busy_pid) != "0"; }));
  const auto orphan = static_cast<pid_t>(std::stol(query_text(watch, busy_pid)));
  ::kill(server.postmaster_pid(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return server.postmaster_pid() == 0; }));
  ASSERT_TRUE(alive(orphan));

  must(server.ensure_running());

  EXPECT_FALSE(alive(orphan));
  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT 'up'::text"), "up");
}

TEST(PrivatePostgresTest, a_stale_pid_file_that_names_a_living_stranger_is_not_believed) {
  const ScratchDir scratch;
  {
    const auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  }
  // The stranger has the server's own user, so that PostgreSQL alone would refuse to start.
  ChildProcess stranger{{.argv = {"sleep", "600"},
                         .user = ::geteuid() == 0 ? std::optional<std::string>{"postgres"} : std::nullopt}};
  write_file(scratch / "data/pgdata/postmaster.pid",
             std::to_string(stranger.pid()) + "\n" + (scratch / "data/pgdata").string() + "\n1\n5432\n" +
                 (scratch / "data/socket").string() + "\n\n\nready\n");
  write_file(scratch / "data/socket/.s.PGSQL.5432.lock", std::to_string(stranger.pid()) + "\n");

  auto server = must(PrivatePostgres::start(quick_options(scratch / "data")));

  EXPECT_TRUE(server.started_here());
  EXPECT_NE(server.postmaster_pid(), stranger.pid());
  must(server.stop());
  EXPECT_TRUE(stranger.running());
}

TEST(PrivatePostgresTest, an_interrupted_initdb_leaves_nothing_half_made) {
  const ScratchDir scratch;
  const fs::path data = scratch / "data";
  const auto drafts = [&] {
    std::vector<fs::path> found;
    if (!fs::exists(data)) return found;
    for (const auto& entry : fs::directory_iterator(data))
      if (entry.path().filename().string().starts_with("pgdata.")) found.push_back(entry.path());
    return found;
  };
  {
    OtherUser killed{data};
    ASSERT_TRUE(eventually([&] { return !drafts().empty() && !fs::is_empty(drafts().front()); }));
    killed.process().send(SIGKILL);
    EXPECT_EQ(killed.process().wait().signal, SIGKILL);
  }
  ASSERT_FALSE(fs::exists(data / "pgdata"));

  auto server = must(PrivatePostgres::start(quick_options(data)));

  EXPECT_TRUE(drafts().empty());
  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT 'up'::text"), "up");
}

TEST(PrivatePostgresTest, the_terminals_interrupt_ends_its_user_and_with_it_the_server) {
  const ScratchDir scratch;
  provide_private_server(scratch / "data");
  OtherUser user{scratch / "data"};
  (void)user.ready();

  user.process().send_to_group(SIGINT);

  EXPECT_EQ(user.process().wait().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
  EXPECT_FALSE(fs::exists(scratch / "data/pgdata/postmaster.pid"));
}

TEST(PrivatePostgresTest, the_terminals_interrupt_does_not_reach_a_server_that_others_use) {
  const ScratchDir scratch;
  provide_private_server(scratch / "data");
  OtherUser starter{scratch / "data"};
  const auto report = starter.ready();
  auto server = must(PrivatePostgres::start(quick_options(scratch / "data")));
  auto connection = connect(server.dsn());

  starter.process().send_to_group(SIGINT);

  EXPECT_EQ(starter.process().wait().exit_code, 0);
  EXPECT_EQ(query_text(connection, "SELECT 'up'::text"), "up");
  EXPECT_EQ(server.postmaster_pid(), report.postmaster_pid);
}

TEST(PrivatePostgresTest, a_server_to_be_kept_outlives_its_users_until_it_is_stopped) {
  const ScratchDir scratch;
  auto options = made_before(scratch / "data");
  options.keep_running = true;
  pid_t postmaster = 0;
  {
    auto server = must(PrivatePostgres::start(options));
    postmaster = server.postmaster_pid();
    EXPECT_EQ(must(server.stop()), StopOutcome::kept_running);
  }
  {
    OtherUser visitor{scratch / "data"};
    EXPECT_EQ(visitor.ready().postmaster_pid, postmaster);
    visitor.process().send(SIGTERM);
    visitor.process().wait();
  }
  const auto status = must(PrivatePostgres::inspect(options));
  EXPECT_TRUE(status.running);
  EXPECT_EQ(status.postmaster_pid, postmaster);

  EXPECT_EQ(must(PrivatePostgres::stop_server(options)), StopOutcome::stopped);

  EXPECT_FALSE(must(PrivatePostgres::inspect(options)).running);
  EXPECT_EQ(must(PrivatePostgres::stop_server(options)), StopOutcome::not_running);
}

TEST(PrivatePostgresTest, a_stop_request_ends_a_start_and_leaves_nothing_running) {
  const ScratchDir scratch;
  std::stop_source stop;
  auto options = quick_options(scratch / "data");
  options.stop = stop.get_token();
  std::jthread interrupter{[&] {
    (void)eventually([&] { return fs::exists(scratch / "data/server.log"); });
    stop.request_stop();
  }};

  const auto server = PrivatePostgres::start(options);

  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::interrupted);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch.path()).empty(); }));
}

TEST(PrivatePostgresTest, a_start_that_fails_tells_the_servers_last_words) {
  const ScratchDir scratch;
  auto options = quick_options(scratch / "data");
  options.settings = {{"shared_buffers", "nonsense"}};

  const auto server = PrivatePostgres::start(options);

  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::start_failed);
  EXPECT_THAT(server.error().log_tail, ::testing::HasSubstr("nonsense"));
  EXPECT_THAT(server.error().hint, ::testing::HasSubstr("server.log"));
}

}  // namespace
}  // namespace faultline::testing
