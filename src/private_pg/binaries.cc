#include "private_pg/binaries.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ranges>
#include <string_view>
#include <vector>

#include "private_pg/process.h"

namespace faultline::private_pg {
namespace {

namespace fs = std::filesystem;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::vector<fs::path> debian_directories() {
  std::vector<fs::path> versions;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/usr/lib/postgresql", ignored))
    versions.push_back(entry.path());
  std::ranges::sort(versions, std::greater{},
                    [](const fs::path& path) { return leading_number(path.filename().string()); });
  for (auto& path : versions) path /= "bin";
  return versions;
}

std::vector<fs::path> candidate_directories() {
  if (const auto chosen = environment("FAULTLINE_PG_BINDIR"); !chosen.empty()) return {fs::path{chosen}};
  std::vector<fs::path> candidates;
  std::string said = capture_output({"pg_config", "--bindir"});
  while (said.ends_with('\n')) said.pop_back();
  if (!said.empty()) candidates.emplace_back(said);
  for (auto& directory : debian_directories()) candidates.push_back(std::move(directory));
  for (const auto part : std::views::split(environment("PATH"), ':'))
    if (!part.empty()) candidates.emplace_back(std::string_view{part.begin(), part.end()});
  return candidates;
}

/// Nothing when the directory holds no server.
std::optional<Binaries> examine(const fs::path& directory) {
  Binaries found{.directory = fs::absolute(directory), .major_version = 0};
  if (::access(found.postgres().c_str(), X_OK) != 0 || ::access(found.initdb().c_str(), X_OK) != 0)
    return std::nullopt;
  constexpr std::string_view kBanner = "postgres (PostgreSQL) ";
  const std::string version = capture_output({found.postgres(), "--version"});
  if (!version.starts_with(kBanner)) return std::nullopt;
  found.major_version = leading_number(std::string_view{version}.substr(kBanner.size()));
  return found;
}

std::string install_hint(int version) {
  return "install it (Debian: apt install postgresql-" + std::to_string(version) +
         "), name its directory in FAULTLINE_PG_BINDIR, or use another server: --database URL or "
         "DATABASE_URL";
}

}  // namespace

Expected<Binaries> find_binaries(std::optional<int> cluster_version) {
  std::vector<Binaries> unsuitable;
  for (const auto& directory : candidate_directories()) {
    const auto found = examine(directory);
    if (!found) continue;
    if (cluster_version ? found->major_version == *cluster_version : found->major_version >= kMajorVersionMin)
      return *found;
    unsuitable.push_back(*found);
  }
  if (cluster_version)
    return fail(PrivatePostgresErrc::version_mismatch,
                "the data directory was made by PostgreSQL " + std::to_string(*cluster_version) +
                    ", which is not installed" +
                    (unsuitable.empty() ? ""
                                        : " (found " + std::to_string(unsuitable.front().major_version) +
                                              " in " + unsuitable.front().directory.string() + ")"),
                install_hint(*cluster_version) + ", or choose another --data-dir");
  if (!unsuitable.empty())
    return fail(PrivatePostgresErrc::binaries_missing,
                "PostgreSQL " + std::to_string(unsuitable.front().major_version) + " in " +
                    unsuitable.front().directory.string() + " is too old: Faultline needs " +
                    std::to_string(kMajorVersionMin) + " or newer",
                install_hint(kMajorVersionOfDebian));
  const auto chosen = environment("FAULTLINE_PG_BINDIR");
  return fail(PrivatePostgresErrc::binaries_missing,
              chosen.empty() ? "no PostgreSQL server is installed (looked for postgres and initdb)"
                             : "FAULTLINE_PG_BINDIR names " + std::string{chosen} +
                                   ", which does not hold a PostgreSQL server (postgres and initdb)",
              install_hint(kMajorVersionOfDebian));
}

}  // namespace faultline::private_pg
