// The Debian package, made from the build under test, unpacked into a root of its own and used there.

#include <regex>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string run(ProcessOptions options) {
  const std::string name = options.argv.front();
  const ProcessResult result = run_process(options);
  EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.out << result.err;
  return result.out;
}

/// Made once for all tests of this program, and quickly: small is for what ships.
class Package {
 public:
  Package() {
    (void)run({.argv = {CPACK_PROGRAM, "--config", FAULTLINE_BUILD "/CPackConfig.cmake", "-G", "DEB", "-D",
                        "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", "-B", scratch_.path()}});
    (void)run({.argv = {"dpkg-deb", "--extract", file(), root()}});
  }

  [[nodiscard]] fs::path file() const {
    for (const auto& entry : fs::directory_iterator{scratch_.path()}) {
      if (entry.path().extension() == ".deb") return entry.path();
    }
    return scratch_ / "no.deb";
  }
  [[nodiscard]] fs::path root() const { return scratch_ / "root"; }
  [[nodiscard]] std::string field(const std::string& name) const {
    return run({.argv = {"dpkg-deb", "--field", file(), name}});
  }

 private:
  ScratchDir scratch_;
};

class PackageTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { package_ = std::make_unique<Package>(); }
  static void TearDownTestSuite() { package_.reset(); }

  /// Runs the packaged program with an environment that knows nothing of the build.
  static ProcessResult run_packaged(const std::vector<std::string>& arguments,
                                    const std::string& database = "") {
    std::vector<std::string> argv{"env", "-i", "PATH=/usr/bin:/bin", "HOME=/nonexistent"};
    if (!database.empty()) argv.push_back("DATABASE_URL=" + database);
    argv.push_back(package_->root() / "usr/bin/faultline");
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_process({.argv = std::move(argv)});
  }

  static std::set<std::string> files() {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator{package_->root()}) {
      if (!entry.is_directory()) found.insert(entry.path().lexically_relative(package_->root()));
    }
    return found;
  }

  static std::string unit(const std::string& name) {
    return read_file(package_->root() / "usr/lib/systemd/system" / name);
  }

  static inline std::unique_ptr<Package> package_;
};

TEST_F(PackageTest, its_metadata_says_what_it_is_and_what_it_needs) {
  EXPECT_EQ(package_->field("Package"), "faultline\n");
  EXPECT_EQ(package_->field("Version"), FAULTLINE_VERSION "\n");
  EXPECT_THAT(package_->file().filename().string(),
              MatchesRegex("faultline_" FAULTLINE_VERSION "_[a-z0-9]+\\.deb"));
  EXPECT_THAT(package_->field("Depends"), HasSubstr("libpq5"));
  EXPECT_THAT(package_->field("Depends"), HasSubstr("libgrpc++"));
  EXPECT_THAT(package_->field("Depends"), HasSubstr("libc6"));
  EXPECT_EQ(package_->field("Recommends"), "postgresql-15\n");
}

TEST_F(PackageTest, it_has_program_library_headers_units_pages_completions_and_an_example) {
  const std::string version = FAULTLINE_VERSION;
  EXPECT_THAT(
      files(),
      IsSupersetOf({std::string{"usr/bin/faultline"}, "usr/" FAULTLINE_LIBDIR "/libfaultline.so." + version,
                    "usr/" FAULTLINE_LIBDIR "/libfaultline-remote.so." + version,
                    std::string{"usr/" FAULTLINE_LIBDIR "/libfaultline.so"},
                    std::string{"usr/" FAULTLINE_LIBDIR "/pkgconfig/faultline.pc"},
                    std::string{"usr/" FAULTLINE_LIBDIR "/cmake/faultline/faultline-config.cmake"},
                    std::string{"usr/include/faultline/worker.h"},
                    std::string{"usr/lib/systemd/system/faultline-server.service"},
                    std::string{"usr/lib/systemd/system/faultline-worker@.service"},
                    std::string{"usr/share/man/man1/faultline.1.gz"},
                    std::string{"usr/share/man/man1/faultline-serve.1.gz"},
                    std::string{"usr/share/bash-completion/completions/faultline"},
                    std::string{"usr/share/zsh/vendor-completions/_faultline"},
                    std::string{"usr/share/faultline/proto/faultline/v1/faultline.proto"},
                    std::string{"usr/share/doc/faultline/copyright"},
                    std::string{"usr/share/doc/faultline/changelog.gz"},
                    std::string{"usr/share/doc/faultline/ops/haproxy/haproxy.cfg"},
                    std::string{"etc/faultline/faultline.toml"}}));
}

TEST_F(PackageTest, its_configuration_is_kept_at_an_upgrade_and_readable_by_root_alone) {
  EXPECT_EQ(run({.argv = {"dpkg-deb", "--info", package_->file(), "conffiles"}}),
            "/etc/faultline/faultline.toml\n");
  const auto mode = fs::status(package_->root() / "etc/faultline/faultline.toml").permissions();
  EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write);
  const ProcessResult checked =
      run_packaged({"config", "check", "--config", package_->root() / "etc/faultline/faultline.toml"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
}

TEST_F(PackageTest, its_installation_and_its_removal_run_ldconfig_and_nothing_else) {
  const std::string control = run({.argv = {"dpkg-deb", "--info", package_->file()}});
  for (const std::string script : {"preinst", "prerm", "config "})
    EXPECT_THAT(control, Not(HasSubstr(script)));
  for (const std::string script : {"postinst", "postrm"}) {
    EXPECT_THAT(
        run({.argv = {"dpkg-deb", "--info", package_->file(), script}}),
        MatchesRegex("#!/bin/sh\n+set -e\n+if \\[ \"\\$1\" = \"[a-z]+\" \\]; then\n\tldconfig\nfi\n+"));
  }
}

TEST_F(PackageTest, the_program_runs_from_there_and_holds_a_drill) {
  const TestDatabase database;

  EXPECT_EQ(run_packaged({"--version"}).out, "faultline " FAULTLINE_VERSION "\n");
  const ProcessResult drill = run_packaged({"drill", "lease-race", "--runs", "20"}, database.dsn());

  EXPECT_EQ(drill.exit_code, 0) << drill.out << drill.err;
}

TEST_F(PackageTest, everything_that_is_linked_is_found_and_comes_from_the_system) {
  for (const std::string file : {"usr/bin/faultline", "usr/" FAULTLINE_LIBDIR "/libfaultline.so"}) {
    const std::string linked = run({.argv = {"env", "-i", "ldd", package_->root() / file}});
    EXPECT_THAT(linked, Not(HasSubstr("not found"))) << file;
    EXPECT_THAT(linked, Not(HasSubstr(FAULTLINE_BUILD))) << file;
  }
  const std::string dynamic = run({.argv = {"readelf", "--dynamic", package_->root() / "usr/bin/faultline"}});
  EXPECT_THAT(dynamic, Not(HasSubstr("RUNPATH")));
  EXPECT_THAT(dynamic, Not(HasSubstr("RPATH")));
}

TEST_F(PackageTest, a_manual_page_can_be_read) {
  const std::string page = run(
      {.argv = {"sh", "-c", "gzip -dc \"$1\" | mandoc -Tlint -Wwarning && gzip -dc \"$1\" | mandoc -Tascii",
                "sh", package_->root() / "usr/share/man/man1/faultline-serve.1.gz"}});
  EXPECT_THAT(page, HasSubstr("FAULTLINE-SERVE(1)"));
}

/// `Name=value` of a unit, in seconds.
long seconds_of(const std::string& unit_text, const std::string& name) {
  std::smatch match;
  if (!std::regex_search(unit_text, match, std::regex{name + "=([0-9]+)s"})) return 0;
  return std::stol(match[1]);
}

TEST_F(PackageTest, systemd_takes_its_units_and_finds_them_well_confined) {
  const std::string root = "--root=" + package_->root().string();
  for (const std::string name : {"faultline-server.service", "faultline-worker@mails.service"}) {
    const ProcessResult result =
        run_process({.argv = {"systemd-analyze", "verify", root, "--recursive-errors=no", "--man=no", name}});
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("faultline"))) << name;
    // Of 10: 9.6 is a unit that says nothing.
    (void)run({.argv = {"systemd-analyze", "security", root, "--offline=yes", "--threshold=20", name}});
  }
}

TEST_F(PackageTest, its_units_leave_time_to_drain) {
  const ProcessResult checked = run_packaged({"--json", "config", "check"});
  for (const auto& setting : one_object(checked.out).at("settings")) {
    if (setting.at("name") != "drain_max") continue;
    EXPECT_GT(seconds_of(unit("faultline-server.service"), "TimeoutStopSec"),
              std::stol(setting.at("default").get<std::string>()));
  }
  // A worker drains for 30 s.
  EXPECT_GT(seconds_of(unit("faultline-worker@.service"), "TimeoutStopSec"), 30);
}

}  // namespace
}  // namespace faultline::testing
