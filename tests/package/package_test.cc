// The Debian packages, made from the build under test, unpacked into a root of their own and used there.

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

const std::string kVersion = FAULTLINE_VERSION;
const std::string kLibrary = "libfaultline" + kVersion.substr(0, kVersion.rfind('.'));
const std::string kRemoteLibrary = "libfaultline-remote" + kVersion.substr(0, kVersion.rfind('.'));
const std::vector<std::string> kPackages{"faultline", "libfaultline-dev", kRemoteLibrary, kLibrary};

/// The output of a program that must succeed. dpkg's, lintian and a compiler need much of a processor, so
/// they get twice as long to end as other programs.
std::string run(const ProcessOptions& options) {
  const std::string& name = options.argv.front();
  ChildProcess process{options};
  (void)eventually([&] { return !process.running(); });
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.out << result.err;
  return result.out;
}

/// Files and links below a directory.
std::set<std::string> files_in(const fs::path& directory) {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator{directory}) {
    if (!entry.is_directory()) found.insert(entry.path().lexically_relative(directory));
  }
  return found;
}

/// Made once for all tests of this program, and quickly: small is for what ships.
class Packages {
 public:
  Packages() {
    (void)run({.argv = {PACKAGE_SCRIPT, FAULTLINE_BUILD, scratch_ / "made"},
               .environment = {{"DPKG_DEB_COMPRESSOR_LEVEL", "0"}}});
    for (const auto& entry : fs::directory_iterator{scratch_ / "made"}) {
      const std::string file = entry.path().filename();
      const std::string name = file.substr(0, file.find('_'));
      files_[name] = entry.path();
      (void)run({.argv = {"dpkg-deb", "--raw-extract", entry.path(), scratch_ / name}});
      (void)run({.argv = {"dpkg-deb", "--extract", entry.path(), root()}});
    }
  }

  [[nodiscard]] const std::map<std::string, std::string>& files() const { return files_; }
  /// What one of them has; its metadata is in DEBIAN.
  [[nodiscard]] fs::path tree(const std::string& package) const { return scratch_ / package; }
  /// A system that has all of them.
  [[nodiscard]] fs::path root() const { return scratch_ / "root"; }
  [[nodiscard]] fs::path scratch(const std::string& name) const { return scratch_ / name; }
  [[nodiscard]] std::string field(const std::string& package, const std::string& name) const {
    return run({.argv = {"dpkg-deb", "--field", files_.at(package), name}});
  }

 private:
  ScratchDir scratch_;
  std::map<std::string, std::string> files_;
};

class PackageTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { packages_ = std::make_unique<Packages>(); }
  static void TearDownTestSuite() { packages_.reset(); }

  /// Runs the packaged program with an environment that knows nothing of the build.
  static ProcessResult run_packaged(const std::vector<std::string>& arguments,
                                    const std::string& database = "") {
    std::vector<std::string> argv{"env", "-i", "PATH=/usr/bin:/bin", "HOME=/nonexistent"};
    if (!database.empty()) argv.push_back("DATABASE_URL=" + database);
    argv.push_back(packages_->root() / "usr/bin/faultline");
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_process({.argv = std::move(argv)});
  }

  static std::string unit(const std::string& name) {
    return read_file(packages_->root() / "usr/lib/systemd/system" / name);
  }

  static inline std::unique_ptr<Packages> packages_;
};

TEST_F(PackageTest, lintian_neither_finds_errors_nor_warns) {
  std::vector<std::string> argv{CHECK_PACKAGES_SCRIPT};
  for (const auto& [name, file] : packages_->files()) argv.push_back(file);

  (void)run({.argv = std::move(argv)});
}

TEST_F(PackageTest, their_metadata_says_what_they_are_and_what_they_need) {
  std::vector<std::string> names;
  for (const auto& [name, file] : packages_->files()) {
    names.push_back(name);
    EXPECT_EQ(packages_->field(name, "Package"), name + "\n");
    EXPECT_EQ(packages_->field(name, "Version"), kVersion + "\n");
  }
  EXPECT_EQ(names, kPackages);

  EXPECT_THAT(
      packages_->field("faultline", "Depends"),
      AllOf(HasSubstr("libpq5"), HasSubstr("libgrpc++"), HasSubstr("libc6"), Not(HasSubstr("libfaultline"))));
  EXPECT_THAT(packages_->field("faultline", "Recommends"), HasSubstr("postgresql"));
  // Who works on the database alone does without gRPC.
  EXPECT_THAT(packages_->field(kLibrary, "Depends"), AllOf(HasSubstr("libpq5"), Not(HasSubstr("grpc"))));
  const std::string same_version = " (= " + kVersion + ")";
  EXPECT_THAT(packages_->field(kRemoteLibrary, "Depends"),
              AllOf(HasSubstr(kLibrary + same_version), HasSubstr("libgrpc++")));
  EXPECT_THAT(packages_->field("libfaultline-dev", "Depends"),
              AllOf(HasSubstr(kLibrary + same_version), HasSubstr(kRemoteLibrary + same_version)));
}

TEST_F(PackageTest, the_programs_package_has_units_pages_completions_guides_and_an_example_of_its_settings) {
  const auto files = files_in(packages_->tree("faultline"));
  EXPECT_THAT(
      files,
      IsSupersetOf(
          {"usr/bin/faultline", "usr/lib/systemd/system/faultline-server.service",
           "usr/lib/systemd/system/faultline-worker@.service", "usr/share/man/man1/faultline.1.gz",
           "usr/share/man/man1/faultline-serve.1.gz", "usr/share/bash-completion/completions/faultline",
           "usr/share/zsh/vendor-completions/_faultline", "usr/share/doc/faultline/getting-started.md",
           "usr/share/doc/faultline/operations.md", "usr/share/doc/faultline/reference/cli.md",
           "usr/share/doc/faultline/ops/haproxy/haproxy.cfg", "usr/share/doc/faultline/CHANGELOG.md",
           "etc/faultline/faultline.toml"}));
  for (const std::string& file : files) EXPECT_THAT(file, Not(HasSubstr("libfaultline")));
}

TEST_F(PackageTest, a_librarys_package_has_the_library_alone) {
  const std::string minor = kVersion.substr(0, kVersion.rfind('.'));
  for (const auto& [package, library] :
       {std::pair{kLibrary, "libfaultline"}, std::pair{kRemoteLibrary, "libfaultline-remote"}}) {
    const std::string so = std::string{"usr/" FAULTLINE_LIBDIR "/"} + library + ".so.";
    EXPECT_THAT(files_in(packages_->tree(package)),
                ElementsAre("DEBIAN/control", "DEBIAN/md5sums", "DEBIAN/shlibs", "DEBIAN/triggers",
                            so + minor, so + kVersion, "usr/share/doc/" + package + "/changelog.gz",
                            "usr/share/doc/" + package + "/copyright"));
  }
}

TEST_F(PackageTest, the_development_package_has_what_a_compiler_wants_and_the_examples) {
  EXPECT_THAT(files_in(packages_->tree("libfaultline-dev")),
              IsSupersetOf({"usr/include/faultline/worker.h", "usr/" FAULTLINE_LIBDIR "/libfaultline.so",
                            "usr/" FAULTLINE_LIBDIR "/libfaultline-remote.so",
                            "usr/" FAULTLINE_LIBDIR "/pkgconfig/faultline.pc",
                            "usr/" FAULTLINE_LIBDIR "/cmake/faultline/faultline-config.cmake",
                            "usr/share/faultline/proto/faultline/v1/faultline.proto",
                            "usr/share/doc/libfaultline-dev/examples/hello.cc",
                            "usr/share/doc/libfaultline-dev/examples/python/worker.py"}));
}

TEST_F(PackageTest, an_example_builds_without_a_header_of_the_repository_and_runs) {
  const TestDatabase database;
  const fs::path build = packages_->scratch("examples");
  (void)run({.argv = {CMAKE_PROGRAM, "-S", packages_->root() / "usr/share/doc/libfaultline-dev/examples",
                      "-B", build, "-G", "Ninja", "-DCMAKE_CXX_COMPILER=" CXX_PROGRAM,
                      "-DCMAKE_PREFIX_PATH=" + (packages_->root() / "usr").string()}});
  (void)run({.argv = {CMAKE_PROGRAM, "--build", build, "--target", "example_hello"}});

  EXPECT_EQ(run({.argv = {build / "example_hello", database.dsn()}}), "hello, world\n");
  EXPECT_THAT(run({.argv = {"ninja", "-C", build, "-t", "deps"}}),
              AllOf(HasSubstr((packages_->root() / "usr/include/faultline/worker.h").string()),
                    Not(HasSubstr(FAULTLINE_SOURCE_DIR "/"))));
}

TEST_F(PackageTest, every_link_of_the_guides_leads_to_a_file_of_the_packages) {
  static const std::regex kLink{R"re(\]\(([^)\s#]+)(#[^)\s]*)?\))re"};
  const fs::path guides = packages_->root() / "usr/share/doc/faultline";
  int links = 0;
  for (const auto& entry : fs::recursive_directory_iterator{guides}) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = read_file(entry.path());
    for (std::sregex_iterator it{text.begin(), text.end(), kLink}, end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.contains("://")) continue;
      ++links;
      EXPECT_TRUE(fs::exists(entry.path().parent_path() / target))
          << entry.path().lexically_relative(guides) << " links to " << target;
    }
  }
  EXPECT_GT(links, 50);
}

TEST_F(PackageTest, the_configuration_is_kept_at_an_upgrade_and_readable_by_root_alone) {
  EXPECT_EQ(read_file(packages_->tree("faultline") / "DEBIAN/conffiles"), "/etc/faultline/faultline.toml\n");
  const auto mode = fs::status(packages_->root() / "etc/faultline/faultline.toml").permissions();
  EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write);
  const ProcessResult checked =
      run_packaged({"config", "check", "--config", packages_->root() / "etc/faultline/faultline.toml"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
}

TEST_F(PackageTest, an_installation_and_a_removal_run_no_script_and_ldconfig_for_the_libraries) {
  for (const std::string& package : kPackages) {
    for (const std::string script : {"preinst", "postinst", "prerm", "postrm", "config"})
      EXPECT_FALSE(fs::exists(packages_->tree(package) / "DEBIAN" / script)) << package << " has " << script;
  }
  for (const std::string& package : {kLibrary, kRemoteLibrary})
    EXPECT_EQ(read_file(packages_->tree(package) / "DEBIAN/triggers"), "activate-noawait ldconfig\n");
}

TEST_F(PackageTest, the_program_runs_from_there_and_holds_a_drill) {
  const TestDatabase database;

  EXPECT_EQ(run_packaged({"--version"}).out, "faultline " FAULTLINE_VERSION "\n");
  const ProcessResult drill = run_packaged({"drill", "lease-race", "--runs", "20"}, database.dsn());

  EXPECT_EQ(drill.exit_code, 0) << drill.out << drill.err;
}

TEST_F(PackageTest, everything_that_is_linked_is_found_and_comes_from_the_system) {
  for (const std::string file : {"usr/bin/faultline", "usr/" FAULTLINE_LIBDIR "/libfaultline.so"}) {
    const std::string linked = run({.argv = {"env", "-i", "ldd", packages_->root() / file}});
    EXPECT_THAT(linked, Not(HasSubstr("not found"))) << file;
    EXPECT_THAT(linked, Not(HasSubstr(FAULTLINE_BUILD))) << file;
  }
  const std::string dynamic =
      run({.argv = {"readelf", "--dynamic", packages_->root() / "usr/bin/faultline"}});
  EXPECT_THAT(dynamic, Not(HasSubstr("RUNPATH")));
  EXPECT_THAT(dynamic, Not(HasSubstr("RPATH")));
}

TEST_F(PackageTest, a_manual_page_can_be_read) {
  const std::string page = run(
      {.argv = {"sh", "-c", "gzip -dc \"$1\" | mandoc -Tlint -Wwarning && gzip -dc \"$1\" | mandoc -Tascii",
                "sh", packages_->root() / "usr/share/man/man1/faultline-serve.1.gz"}});
  EXPECT_THAT(page, HasSubstr("FAULTLINE-SERVE(1)"));
}

/// `Name=value` of a unit, in seconds.
long seconds_of(const std::string& unit_text, const std::string& name) {
  std::smatch match;
  if (!std::regex_search(unit_text, match, std::regex{name + "=([0-9]+)s"})) return 0;
  return std::stol(match[1]);
}

TEST_F(PackageTest, systemd_takes_its_units_and_finds_them_well_confined) {
  const std::string root = "--root=" + packages_->root().string();
  for (const std::string name : {"faultline-server.service", "faultline-worker@mails.service"}) {
    const ProcessResult result =
        run_process({.argv = {"systemd-analyze", "verify", root, "--recursive-errors=no", "--man=no", name}});
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("faultline"))) << name;
    // Of 10: 9.6 is a unit that says nothing.
    (void)run({.argv = {"systemd-analyze", "security", root, "--offline=yes", "--threshold=20", name}});
  }
}

TEST_F(PackageTest, a_workers_unit_takes_the_name_of_its_queue_as_it_stands) {
  // %I would make a path of it: welcome-mail is welcome/mail there.
  EXPECT_THAT(unit("faultline-worker@.service"),
              AllOf(HasSubstr("faultline work %i "), Not(HasSubstr("%I"))));
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
