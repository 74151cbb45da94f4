// What `cmake --install` leaves behind, seen from a project that has nothing else of Faultline.

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
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
      "lib/libfaultline.so",
      "lib/libfaultline.so." + minor,
      "lib/libfaultline.so." + version,
      "lib/pkgconfig/faultline.pc",
      "lib/cmake/faultline/faultline-config.cmake",
      "lib/cmake/faultline/faultline-config-version.cmake",
  };
  for (const std::string header : {"client", "error", "event", "handler", "job", "json", "store", "time",
                                   "transaction", "uuid", "watchdog", "worker"}) {
    expected.insert("include/faultline/" + header + ".h");
  }

  auto files = installed();
  // The one file whose name depends on the build type.
  std::erase_if(files, [](const std::string& file) {
    return file.contains("faultline-config-") && !file.ends_with("-version.cmake");
  });
  EXPECT_EQ(files, expected);
}

TEST_F(InstallTest, the_library_exports_the_public_api_and_keeps_its_insides) {
  const auto symbols = lines_of(run({"nm", "--dynamic", "--defined-only", "--demangle",
                                     "--format=just-symbols", prefix() / "lib/libfaultline.so"}));
  EXPECT_THAT(symbols, ::testing::Contains(StartsWith("faultline::Client::open(")));
  EXPECT_THAT(symbols, ::testing::Contains(StartsWith("faultline::Worker::start(")));
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
}

TEST_F(InstallTest, an_outside_project_finds_it_with_find_package) {
  const TestDatabase database;
  const fs::path build = scratch_ / "build";
  (void)run({CMAKE_PROGRAM, "-S", OUTSIDE_PROJECT, "-B", build, "-G", "Ninja",
             "-DCMAKE_CXX_COMPILER=" CXX_PROGRAM, "-DCMAKE_PREFIX_PATH=" + prefix().string()});
  (void)run({CMAKE_PROGRAM, "--build", build});

  EXPECT_EQ(run({build / "outside", database.dsn()}), "hello, \"world\"\n");
  // What the library is made with stays its own affair.
  const std::string needed = run({"readelf", "--dynamic", build / "outside"});
  EXPECT_THAT(needed, Not(HasSubstr("libpq")));
  EXPECT_THAT(needed, Not(HasSubstr("libgrpc")));
  EXPECT_THAT(needed, Not(HasSubstr("libprotobuf")));
}

TEST_F(InstallTest, an_outside_project_finds_it_with_pkg_config) {
  const TestDatabase database;
  const std::string flags = run({"pkg-config", "--cflags", "--libs", "faultline"},
                                {{"PKG_CONFIG_PATH", prefix() / "lib/pkgconfig"}});
  std::vector<std::string> compile{CXX_PROGRAM, "-std=c++23", "-o", "outside", OUTSIDE_PROJECT "/main.cc"};
  std::ranges::copy(words_of(flags), std::back_inserter(compile));
  (void)run(std::move(compile));

  EXPECT_EQ(run({scratch_ / "outside", database.dsn()}, {{"LD_LIBRARY_PATH", prefix() / "lib"}}),
            "hello, \"world\"\n");
  EXPECT_EQ(
      run({"pkg-config", "--modversion", "faultline"}, {{"PKG_CONFIG_PATH", prefix() / "lib/pkgconfig"}}),
      FAULTLINE_VERSION "\n");
}

TEST_F(InstallTest, a_project_that_asks_for_another_version_is_told_so) {
  write_file(scratch_ / "CMakeLists.txt",
             "cmake_minimum_required(VERSION 3.25)\nproject(later LANGUAGES NONE)\n"
             "find_package(faultline 99.0 REQUIRED)\n");

  const auto result = run_process({.argv = {CMAKE_PROGRAM, "-S", scratch_.path(), "-B", scratch_ / "later",
                                            "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + prefix().string()}});

  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("version: " FAULTLINE_VERSION));
}

TEST_F(InstallTest, the_installed_program_needs_nothing_of_the_installed_library) {
  EXPECT_EQ(run({prefix() / "bin/faultline", "--version"}), "faultline " FAULTLINE_VERSION "\n");
  EXPECT_THAT(run({"readelf", "--dynamic", prefix() / "bin/faultline"}), Not(HasSubstr("libfaultline")));
}

}  // namespace
}  // namespace faultline::testing
