// What the data directory may be, and what is said when it cannot be used.

#include "private_pg/data_dir.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "fixture.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

PrivatePostgresError error_of(const PrivatePostgresOptions& options) {
  auto server = PrivatePostgres::start(options);
  if (server) throw std::runtime_error("it started, and should not have");
  return server.error();
}

TEST(DataDirTest, a_path_too_long_for_a_socket_still_works) {
  const ScratchDir scratch;
  const fs::path data = scratch / std::string(100, 'd') / std::string(100, 'e');
  fs::path socket_dir;
  {
    auto server = must(PrivatePostgres::start(made_before(data)));
    auto connection = connect(server.dsn());
    socket_dir = query_text(connection, "SELECT current_setting('unix_socket_directories')");
    EXPECT_EQ(fs::status(socket_dir).permissions(), fs::perms::owner_all);
    OtherUser other{data};
    EXPECT_EQ(other.ready().dsn, server.dsn());
    other.process().send(SIGTERM);
    other.process().wait();
  }
  EXPECT_FALSE(fs::exists(socket_dir));
}

TEST(DataDirTest, a_path_with_a_space_and_a_comma_works) {
  const ScratchDir scratch;
  auto server = must(PrivatePostgres::start(quick_options(scratch / "my data, and 'more' \"of\" it")));
  auto connection = connect(server.dsn());
  EXPECT_EQ(query_text(connection, "SELECT 'up'::text"), "up");
}

TEST(DataDirTest, missing_binaries_are_named_by_package_with_another_way_out) {
  const ScratchDir scratch;
  const ScopedEnvironment nowhere{"FAULTLINE_PG_BINDIR", scratch / "empty"};

  const auto error = error_of(quick_options(scratch / "data"));

  EXPECT_EQ(error.code, PrivatePostgresErrc::binaries_missing);
  EXPECT_THAT(error.hint, HasSubstr("postgresql-15"));
  EXPECT_THAT(error.hint, HasSubstr("--database"));
}

TEST(DataDirTest, a_server_that_is_too_old_is_refused) {
  const ScratchDir scratch;
  for (const auto* name : {"postgres", "initdb"}) {
    write_file(scratch / name, "#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n");
    fs::permissions(scratch / name, fs::perms::owner_all | fs::perms::others_exec | fs::perms::others_read);
  }
  const ScopedEnvironment old{"FAULTLINE_PG_BINDIR", scratch.path()};

  const auto error = error_of(quick_options(scratch / "data"));

  EXPECT_EQ(error.code, PrivatePostgresErrc::binaries_missing);
  EXPECT_THAT(error.message, HasSubstr("PostgreSQL 13"));
  EXPECT_THAT(error.message, HasSubstr("14 or newer"));
}

TEST(DataDirTest, a_cluster_of_a_version_that_is_not_installed_is_refused_and_kept) {
  const ScratchDir scratch;
  {
    const auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  }
  const fs::path version = scratch / "data/pgdata/PG_VERSION";
  const std::string before = read_file(version);
  write_file(version, "13\n");

  const auto error = error_of(quick_options(scratch / "data"));

  EXPECT_EQ(error.code, PrivatePostgresErrc::version_mismatch);
  EXPECT_THAT(error.message, HasSubstr("13"));
  EXPECT_THAT(error.hint, HasSubstr("postgresql-13"));
  write_file(version, before);
  EXPECT_TRUE(PrivatePostgres::start(quick_options(scratch / "data")));
}

TEST(DataDirTest, a_path_that_is_a_file_is_refused) {
  const ScratchDir scratch;
  write_file(scratch / "file", "precious");

  const auto error = error_of(quick_options(scratch / "file"));

  EXPECT_EQ(error.code, PrivatePostgresErrc::data_dir_unusable);
  EXPECT_THAT(error.message, HasSubstr("not a directory"));
  EXPECT_EQ(read_file(scratch / "file"), "precious");
}

TEST(DataDirTest, a_directory_with_foreign_files_is_left_as_it_is) {
  const ScratchDir scratch;
  fs::create_directory(scratch / "photos");
  write_file(scratch / "photos/holiday.jpg", "precious");

  const auto error = error_of(quick_options(scratch / "photos"));

  EXPECT_EQ(error.code, PrivatePostgresErrc::data_dir_unusable);
  EXPECT_THAT(error.message, HasSubstr("nothing was changed"));
  EXPECT_EQ(std::distance(fs::directory_iterator{scratch / "photos"}, {}), 1);
  EXPECT_FALSE(PrivatePostgres::stop_server(quick_options(scratch / "photos")));
}

TEST(DataDirTest, looking_at_a_directory_that_does_not_exist_makes_nothing) {
  const ScratchDir scratch;

  const auto status = must(PrivatePostgres::inspect(quick_options(scratch / "data")));

  EXPECT_FALSE(status.running);
  EXPECT_EQ(must(PrivatePostgres::stop_server(quick_options(scratch / "data"))),
            PrivatePostgres::StopOutcome::not_running);
  EXPECT_FALSE(fs::exists(scratch / "data"));
}

// Whoever comes upon it a moment later judges by its mode whether the server's user can enter.
TEST(DataDirTest, a_new_directory_is_never_seen_with_another_mode) {
  const ScratchDir scratch;
  const fs::path path = scratch / "data";
  const auto mode = ::geteuid() == 0 ? fs::perms{0711} : fs::perms{0700};
  std::atomic<bool> done{false};
  std::atomic<int> seen{0};
  std::atomic<int> wrong{0};
  std::jthread other{[&] {
    while (!done) {
      std::error_code error;
      const auto status = fs::status(path, error);
      if (error || !fs::exists(status)) continue;
      ++seen;
      if (status.permissions() != mode) ++wrong;
    }
  }};
  for (int made = 0; made < 2'000 || (seen == 0 && made < 200'000); ++made) {
    must(private_pg::DataDir::open_or_create(path));
    fs::remove_all(path);
  }
  done = true;
  other.join();
  EXPECT_GT(seen, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(DataDirTest, a_large_log_is_moved_aside) {
  const ScratchDir scratch;
  {
    const auto server = must(PrivatePostgres::start(made_before(scratch / "data")));
  }
  write_file(scratch / "data/server.log", std::string(9U << 20U, 'x'));

  const auto server = must(PrivatePostgres::start(quick_options(scratch / "data")));

  EXPECT_EQ(fs::file_size(scratch / "data/server.log.1"), 9U << 20U);
  EXPECT_LT(fs::file_size(scratch / "data/server.log"), 1U << 20U);
}

TEST(DataDirTest, the_default_is_the_state_directory_of_the_user) {
  const ScopedEnvironment state{"XDG_STATE_HOME", "/somewhere/state"};
  EXPECT_EQ(default_data_dir(), "/somewhere/state/faultline");
  const ScopedEnvironment no_state{"XDG_STATE_HOME", std::nullopt};
  const ScopedEnvironment home{"HOME", "/home/somebody"};
  EXPECT_EQ(default_data_dir(),
            ::geteuid() == 0 ? "/var/lib/faultline" : "/home/somebody/.local/state/faultline");
}

}  // namespace
}  // namespace faultline::testing
