// What `cmake --install` leaves behind, seen from a project that has nothing else of Faultline.

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in{text};
  return {std::istream_iterator<std::string>{in}, {}};
}

/// `faultline serve` of an installed tree, on ports that nobody else has.
class InstalledServer {
 public:
  InstalledServer(const fs::path& prefix, const std::string& database)
      : process_{
            {.argv = {prefix / "bin/faultline", "serve", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"},
             .environment = {{"DATABASE_URL", database}}}} {
    std::smatch match;
    std::string said;
    const auto serves = [&] {
      said = process_.err();
      return std::regex_search(said, match, std::regex{R"(gRPC on ([0-9.]+:[0-9]+)\.)"});
    };
    if (!eventually([&] { return serves() || !process_.running(); }) || match.empty())
      throw std::runtime_error("the server does not say where it is:\n" + process_.err());
    grpc_ = match[1];
  }

  [[nodiscard]] const std::string& grpc() const { return grpc_; }

 private:
  ChildProcess process_;
  std::string grpc_;
};

class InstallTest : public ::testing::Test {
 protected:
  /// Installs, and moves what was installed: it must not know where it was put first.
  InstallTest() {
    const fs::path first = scratch_ / "first";
    (void)run({CMAKE_PROGRAM, "--install", FAULTLINE_BUILD, "--prefix", first});
    fs::rename(first, prefix());
  }

  [[nodiscard]] fs::path prefix() const { return scratch_ / "prefix"; }

  /// The output of a command that must succeed.
  std::string run(std::vector<std::string> argv,
                  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {}) const {
    const std::string name = argv.front();
    const auto result = run_process(
        {.argv = std::move(argv), .environment = std::move(environment), .directory = scratch_.path()});
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.out << result.err;
    return result.out;
  }

  /// What a library gives to those who link it.
  [[nodiscard]] std::vector<std::string> exports_of(const std::string& library) const {
    return lines_of(run({"nm", "--dynamic", "--defined-only", "--demangle", "--format=just-symbols",
                         prefix() / FAULTLINE_LIBDIR / library}));
  }

  /// Files and links below the prefix.
  [[nodiscard]] std::set<std::string> installed() const {
    std::set<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator{prefix()}) {
      if (!entry.is_directory()) files.insert(entry.path().lexically_relative(prefix()));
    }
    return files;
  }

  const ScratchDir scratch_;
};

TEST_F(InstallTest, an_installed_tree_has_what_is_public_and_nothing_else) {
  const std::string version = FAULTLINE_VERSION;
  const std::string minor = version.substr(0, version.rfind('.'));
  std::set<std::string> expected{
      "bin/faultline",
      FAULTLINE_LIBDIR "/libfaultline.so",
      FAULTLINE_LIBDIR "/libfaultline.so." + minor,
      FAULTLINE_LIBDIR "/libfaultline.so." + version,
      FAULTLINE_LIBDIR "/libfaultline-remote.so",
      FAULTLINE_LIBDIR "/libfaultline-remote.so." + minor,
      FAULTLINE_LIBDIR "/libfaultline-remote.so." + version,
      FAULTLINE_LIBDIR "/pkgconfig/faultline.pc",
      FAULTLINE_LIBDIR "/pkgconfig/faultline-remote.pc",
      FAULTLINE_LIBDIR "/cmake/faultline/faultline-config.cmake",
      FAULTLINE_LIBDIR "/cmake/faultline/faultline-config-version.cmake",
      FAULTLINE_LIBDIR "/cmake/faultline/faultline-targets.cmake",
      "share/faultline/proto/faultline/v1/faultline.proto",
  };
  for (const std::string header : {"client", "error", "event", "handler", "job", "json", "language", "schema",
                                   "store", "time", "transaction", "uuid", "watchdog", "worker"}) {
    expected.insert("include/faultline/" + header + ".h");
  }

  auto files = installed();
  // The one file whose name depends on the build type.
  std::erase_if(files, [](const std::string& file) { return file.contains("faultline-targets-"); });
  EXPECT_EQ(files, expected);
}

TEST_F(InstallTest, the_libraries_export_the_public_api_and_keep_their_insides) {
  const auto symbols = exports_of("libfaultline.so");
  EXPECT_THAT(symbols, Contains(StartsWith("faultline::Client::open(")));
  EXPECT_THAT(symbols, Contains(StartsWith("faultline::Worker::start(")));
  EXPECT_THAT(symbols, Contains(StartsWith("faultline::migrate(")));
  EXPECT_THAT(symbols, Contains(StartsWith("faultline::operator<<(")));
  for (const std::string& symbol : symbols) {
    std::string_view name = symbol;
    for (const std::string_view prefix : {"typeinfo for ", "typeinfo name for ", "vtable for "}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    EXPECT_THAT(name, StartsWith("faultline::"));
    EXPECT_THAT(name, Not(StartsWith("faultline::pg::")));
    EXPECT_THAT(name, Not(StartsWith("faultline::store::")));
    EXPECT_THAT(name, Not(StartsWith("faultline::v1::")));
  }
  EXPECT_THAT(exports_of("libfaultline-remote.so"), ElementsAre(StartsWith("faultline::Worker::connect(")));
}

TEST_F(InstallTest, an_outside_project_finds_them_with_find_package) {
  const TestDatabase database;
  const fs::path build = scratch_ / "build";
  (void)run({CMAKE_PROGRAM, "-S", OUTSIDE_PROJECT, "-B", build, "-G", "Ninja",
             "-DCMAKE_CXX_COMPILER=" CXX_PROGRAM, "-DCMAKE_PREFIX_PATH=" + prefix().string(),
             "-DFAULTLINE_PREFIX=" + prefix().string(), "-DCMAKE_CXX_COMPILER_LAUNCHER=" CXX_LAUNCHER});
  // What was compiled before is the same though it lies elsewhere.
  (void)run({CMAKE_PROGRAM, "--build", build},
            {{"CCACHE_BASEDIR", scratch_.path()}, {"CCACHE_NOHASHDIR", "1"}});

  EXPECT_EQ(run({build / "outside", database.dsn()}), "hello, \"world\"\n");
  const InstalledServer server{prefix(), database.dsn()};
  // With descriptors of its own: there is one pool of them in a program, and none of ours in it.
  EXPECT_EQ(run({build / "outside_remote", server.grpc()}),
            "faultline.v1.GetJobResponse: hello, \"world\"\n");

  // What the library is made with stays its own affair.
  const std::string needed = run({"readelf", "--dynamic", build / "outside"});
  EXPECT_THAT(needed, Not(HasSubstr("libpq")));
  EXPECT_THAT(needed, Not(HasSubstr("libfaultline-remote")));
  // And gRPC is loaded for those who go through a server.
  EXPECT_THAT(run({"ldd", build / "outside"}),
              AllOf(HasSubstr("libpq"), Not(HasSubstr("libgrpc")), Not(HasSubstr("libprotobuf"))));
  EXPECT_THAT(run({"ldd", build / "outside_remote"}), HasSubstr("libgrpc"));
}

TEST_F(InstallTest, an_outside_project_finds_them_with_pkg_config) {
  const TestDatabase database;
  const auto pkg_config = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "pkg-config");
    return run(std::move(arguments), {{"PKG_CONFIG_PATH", prefix() / FAULTLINE_LIBDIR "/pkgconfig"}});
  };
  std::vector<std::string> compile{CXX_PROGRAM, "-std=c++23", "-o", "outside", OUTSIDE_PROJECT "/main.cc"};
  std::ranges::copy(words_of(pkg_config({"--cflags", "--libs", "faultline"})), std::back_inserter(compile));
  (void)run(std::move(compile));

  EXPECT_EQ(run({scratch_ / "outside", database.dsn()}, {{"LD_LIBRARY_PATH", prefix() / FAULTLINE_LIBDIR}}),
            "hello, \"world\"\n");
  EXPECT_EQ(pkg_config({"--modversion", "faultline"}), FAULTLINE_VERSION "\n");
  EXPECT_EQ(pkg_config({"--modversion", "faultline-remote"}), FAULTLINE_VERSION "\n");
  EXPECT_THAT(words_of(pkg_config({"--libs", "faultline-remote"})),
              IsSupersetOf({"-lfaultline-remote", "-lfaultline"}));
}

TEST_F(InstallTest, an_older_language_is_refused_with_the_flag_to_set) {
  const auto headers = prefix() / "include";
  for (const auto& entry : fs::directory_iterator{headers / "faultline"}) {
    const std::string header = "faultline/" + entry.path().filename().string();
    write_file(scratch_ / "older.cc", "#include <" + header + ">\n");
    const auto compiled = run_process(
        {.argv = {CXX_PROGRAM, "-std=c++20", "-fsyntax-only", "-I", headers, scratch_ / "older.cc"}});
    EXPECT_NE(compiled.exit_code, 0) << header;
    EXPECT_THAT(compiled.err, HasSubstr("Faultline needs C++23: compile with -std=c++23")) << header;
  }
}

TEST_F(InstallTest, a_project_that_asks_for_what_is_not_there_is_told_so) {
  const auto configure = [&](const std::string& find_package) {
    write_file(scratch_ / "CMakeLists.txt",
               "cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n" + find_package + "\n");
    return run_process(
        {.argv = {CMAKE_PROGRAM, "--fresh", "-S", scratch_.path(), "-B", scratch_ / "other", "-G", "Ninja",
                  "-DCMAKE_CXX_COMPILER=" CXX_PROGRAM, "-DCMAKE_PREFIX_PATH=" + prefix().string()}});
  };

  const auto later = configure("find_package(faultline 99.0 REQUIRED)");
  EXPECT_NE(later.exit_code, 0);
  EXPECT_THAT(later.err, HasSubstr("version: " FAULTLINE_VERSION));

  const auto component = configure("find_package(faultline REQUIRED COMPONENTS remtoe)");
  EXPECT_NE(component.exit_code, 0);
  EXPECT_THAT(component.err, HasSubstr("faultline has no component 'remtoe'; there is: remote."));
  EXPECT_EQ(configure("find_package(faultline REQUIRED)").exit_code, 0);
}

TEST_F(InstallTest, the_installed_program_needs_nothing_of_the_installed_library) {
  EXPECT_EQ(run({prefix() / "bin/faultline", "--version"}), "faultline " FAULTLINE_VERSION "\n");
  EXPECT_THAT(run({"readelf", "--dynamic", prefix() / "bin/faultline"}), Not(HasSubstr("libfaultline")));
}

}  // namespace
}  // namespace faultline::testing
