// Who runs the server, and whom it trusts. Most of this needs root, to become somebody else.

#include <sys/mount.h>

#include "fixture.h"
#include "private_pg/binaries.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PrivilegeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to run things as other users";
  }
  const ScratchDir scratch_;
};

void give_to_nobody(const fs::path& path) {
  constexpr uid_t kNobody = 65'534;
  if (::chown(path.c_str(), kNobody, kNobody) != 0) throw std::runtime_error("chown failed");
}

TEST_F(PrivilegeTest, no_process_of_the_server_of_root_is_root) {
  auto server = must(PrivatePostgres::start(quick_options(scratch_ / "data")));

  const auto processes = processes_in(scratch_.path());

  EXPECT_GT(processes.size(), 3U);
  for (const pid_t pid : processes) EXPECT_NE(owner_of("/proc/" + std::to_string(pid)), 0U) << pid;
  EXPECT_EQ(owner_of(scratch_ / "data"), 0U);
  EXPECT_NE(owner_of(scratch_ / "data/pgdata"), 0U);
}

TEST_F(PrivilegeTest, an_ordinary_user_runs_the_server_as_itself) {
  fs::create_directory(scratch_ / "home");
  give_to_nobody(scratch_ / "home");
  OtherUser user{scratch_ / "home/data", "nobody"};

  const auto report = user.ready();

  EXPECT_TRUE(report.started_here);
  EXPECT_EQ(owner_of("/proc/" + std::to_string(report.postmaster_pid)), owner_of(scratch_ / "home"));
  EXPECT_EQ(fs::status(scratch_ / "home/data").permissions(), fs::perms::owner_all);
  user.process().send(SIGTERM);
  EXPECT_EQ(user.process().wait().exit_code, 0);
  EXPECT_TRUE(eventually([&] { return processes_in(scratch_.path()).empty(); }));
}

TEST_F(PrivilegeTest, another_user_cannot_reach_the_socket) {
  auto server = must(PrivatePostgres::start(made_before(scratch_ / "data")));

  const auto result = run_process({.argv = {"ls", (scratch_ / "data/socket").string()}, .user = "nobody"});

  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("Permission denied"));
}

TEST_F(PrivilegeTest, a_directory_that_the_servers_user_cannot_enter_is_named) {
  fs::create_directory(scratch_ / "closed");
  fs::permissions(scratch_ / "closed", fs::perms::owner_all);

  const auto server = PrivatePostgres::start(quick_options(scratch_ / "closed/data"));

  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::data_dir_unusable);
  EXPECT_THAT(server.error().message, HasSubstr("cannot enter " + (scratch_ / "closed").string()));
  EXPECT_THAT(server.error().hint, HasSubstr("--data-dir"));
}

TEST_F(PrivilegeTest, programs_that_the_servers_user_cannot_reach_are_refused_and_nothing_is_made) {
  fs::create_directory(scratch_ / "closed");
  fs::create_directory_symlink(must(private_pg::find_binaries(std::nullopt)).directory,
                               scratch_ / "closed/bin");
  fs::permissions(scratch_ / "closed", fs::perms::owner_all);
  const ScopedEnvironment chosen{"FAULTLINE_PG_BINDIR", scratch_ / "closed/bin"};

  const auto server = PrivatePostgres::start(quick_options(scratch_ / "data"));

  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::binaries_missing);
  EXPECT_THAT(server.error().message, HasSubstr("cannot enter " + (scratch_ / "closed").string()));
  EXPECT_FALSE(fs::exists(scratch_ / "data/pgdata"));
}

TEST_F(PrivilegeTest, a_data_directory_of_somebody_else_is_refused) {
  fs::create_directory(scratch_ / "theirs");
  give_to_nobody(scratch_ / "theirs");

  const auto server = PrivatePostgres::start(quick_options(scratch_ / "theirs"));

  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::data_dir_unusable);
  EXPECT_THAT(server.error().message, HasSubstr("belongs to the user with id 65534"));
  EXPECT_TRUE(fs::is_empty(scratch_ / "theirs"));
}

TEST_F(PrivilegeTest, a_directory_that_cannot_be_written_is_named) {
  OtherUser user{scratch_ / "data", "nobody"};

  const auto result = user.process().wait();

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr((scratch_ / "data").string() + ": Permission denied"));
}

TEST_F(PrivilegeTest, a_socket_directory_that_somebody_else_made_is_never_used) {
  const fs::path data = scratch_ / std::string(100, 'd');
  fs::path socket_dir;
  {
    auto server = must(PrivatePostgres::start(made_before(data)));
    auto connection = connect(server.dsn());
    socket_dir = query_text(connection, "SELECT current_setting('unix_socket_directories')");
  }
  ASSERT_TRUE(fs::create_directory(socket_dir));
  give_to_nobody(socket_dir);

  const auto server = PrivatePostgres::start(quick_options(data));

  fs::remove(socket_dir);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr(socket_dir.string() + " belongs to another user"));
}

TEST_F(PrivilegeTest, a_full_disk_is_said_to_be_full_and_nothing_half_made_stays) {
  const fs::path disk = scratch_ / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8m,mode=0755") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system";

  const auto server = PrivatePostgres::start(quick_options(disk / "data"));

  const bool cluster_made = fs::exists(disk / "data/pgdata");
  ::umount(disk.c_str());
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, PrivatePostgresErrc::start_failed);
  EXPECT_THAT(server.error().hint, HasSubstr("disk is full"));
  EXPECT_FALSE(cluster_made);
}

}  // namespace
}  // namespace faultline::testing
