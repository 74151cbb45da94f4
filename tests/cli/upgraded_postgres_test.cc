// PostgreSQL's files are replaced under a running server, as a minor upgrade does: what goes on, and what is
// told.

#include <csignal>
#include <fstream>

#include "faultline/store.h"
#include "private_pg/binaries.h"
#include "program.h"
#include "server/serve_process.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// An installation of PostgreSQL that a test may spoil: a copy, which finds its files beside itself.
class CopiedPostgres {
 public:
  CopiedPostgres() {
    const fs::path bin = private_pg::find_binaries(std::nullopt).value().directory;
    const fs::path version = bin.parent_path().filename();
    const fs::path home = scratch_ / "usr/lib/postgresql" / version;
    fs::create_directories(home);
    for (const std::string part : {"bin", "lib"})
      fs::copy(bin.parent_path() / part, home / part,
               fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::create_directories(scratch_ / "usr/share/postgresql");
    fs::create_directory_symlink("/usr/share/postgresql" / version,
                                 scratch_ / "usr/share/postgresql" / version);
    bin_ = home / "bin";
    library_ = home / "lib/plpgsql.so";
  }

  [[nodiscard]] const fs::path& bin() const { return bin_; }
  /// The library of another version takes its place, which the running server cannot load.
  void replace_library() const {
    fs::rename(library_, library_.string() + ".old");
    std::ofstream{library_} << "of another version";
  }
  void put_library_back() const { fs::rename(library_.string() + ".old", library_); }
  /// As dpkg does: the new file is written beside the old one, and takes its name.
  void upgrade() const {
    fs::copy_file(bin_ / "postgres", bin_ / "postgres.dpkg-new");
    fs::rename(bin_ / "postgres.dpkg-new", bin_ / "postgres");
  }

 private:
  const ScratchDir scratch_;
  fs::path bin_, library_;
};

class UpgradedPostgresTest : public ::testing::Test {
 protected:
  UpgradedPostgresTest() : ours_("FAULTLINE_PG_BINDIR", copy_.bin().string()) {
    provide_private_server(data_dir());
  }
  ~UpgradedPostgresTest() override { (void)faultline({"pg", "stop"}); }

  [[nodiscard]] std::string data_dir() const { return scratch_ / "data"; }
  [[nodiscard]] std::vector<std::string> on_data_dir(std::vector<std::string> words) const {
    words.insert(std::next(words.begin()), {"--data-dir", data_dir()});
    return words;
  }
  [[nodiscard]] ProcessResult faultline(std::vector<std::string> words) const {
    return run_faultline(on_data_dir(std::move(words)));
  }

  const CopiedPostgres copy_;
  const ScopedEnvironment ours_;
  const ScratchDir scratch_;
};

TEST_F(UpgradedPostgresTest, a_private_server_goes_on_when_its_library_is_replaced) {
  ASSERT_EQ(faultline({"pg", "start"}).exit_code, 0);
  ASSERT_EQ(faultline({"migrate"}).exit_code, 0);

  copy_.replace_library();

  const auto added = faultline({"enqueue", "mail", "{}"});
  EXPECT_EQ(added.exit_code, 0) << added.err;
  const auto worked = faultline({"work", "default", "--until-empty", "--exec", "cat"});
  EXPECT_EQ(worked.exit_code, 0) << worked.err;
  EXPECT_EQ(one_object(faultline({"queues", "list", "--json"}).out).at("queues").at(0).at("succeeded"), 1);
  copy_.put_library_back();
}

TEST_F(UpgradedPostgresTest,
       a_server_whose_new_sessions_cannot_load_their_library_is_not_ready_and_doctor_says_why) {
  // As a server that somebody else administers.
  const auto server =
      must(PrivatePostgres::start({.data_dir = data_dir(), .settings = {{"shared_preload_libraries", ""}}}));
  const std::string dsn = server.dsn();
  ASSERT_EQ(run_faultline({"migrate", "--database", dsn}).exit_code, 0);
  ServeProcess serve{dsn};
  serve.wait_until_ready();
  EXPECT_EQ(run_faultline({"doctor", "--database", dsn}).exit_code, 0);

  copy_.replace_library();

  const auto ill = run_faultline({"doctor", "--database", dsn});
  EXPECT_EQ(ill.exit_code, 1);
  EXPECT_THAT(ill.out, AllOf(HasSubstr("functions"), HasSubstr("plpgsql"), HasSubstr("restart it")));
  EXPECT_TRUE(eventually([&] { return http_get(serve.http_port(), "/ready").status == 503; }));
  EXPECT_THAT(http_get(serve.http_port(), "/ready").body, HasSubstr("restart it"));
  EXPECT_THAT(serve.process().err(), AllOf(HasSubstr("database_lost"), HasSubstr("58P01")));

  copy_.put_library_back();
  EXPECT_TRUE(eventually([&] { return http_get(serve.http_port(), "/ready").status == 200; }));
  EXPECT_EQ(serve.terminate().exit_code, 0);
}

TEST_F(UpgradedPostgresTest, up_starts_its_server_anew_from_the_new_files) {
  ChildProcess up{faultline_program(
      on_data_dir({"up", "--listen", "127.0.0.1:0", "--grpc", "off", "--json", "--no-demo"}))};
  const auto says = [&](const std::string& words) {
    return eventually([&] { return (up.out() + up.err()).contains(words) || !up.running(); }) && up.running();
  };
  ASSERT_TRUE(says(R"("event":"up")")) << up.out() << up.err();
  const auto status = [&] { return one_object(faultline({"pg", "status", "--json"}).out); };
  const auto before = status().at("pid");

  copy_.upgrade();

  ASSERT_TRUE(says("private_postgres_replaced")) << up.out() << up.err();
  EXPECT_THAT(faultline({"doctor"}).out, HasSubstr("an upgrade has replaced the files"));
  ASSERT_TRUE(says("private_postgres_back")) << up.out() << up.err();
  EXPECT_NE(status().at("pid"), before);
  EXPECT_EQ(faultline({"enqueue", "mail", "{}"}).exit_code, 0);
  up.send(SIGINT);
  EXPECT_EQ(up.wait().exit_code, 0) << up.err();
}

}  // namespace
}  // namespace faultline::testing
