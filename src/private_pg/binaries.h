#pragma once

#include <filesystem>
#include <optional>

#include "private_pg/error.h"

namespace faultline::private_pg {

/// An installed PostgreSQL server.
struct Binaries {
  std::filesystem::path directory;
  int major_version = 0;

  [[nodiscard]] std::string postgres() const { return directory / "postgres"; }
  [[nodiscard]] std::string initdb() const { return directory / "initdb"; }
};

/// The oldest server that is supported; `./dev test --all` tries the oldest and the newest.
inline constexpr int kMajorVersionMin = 14;
/// The one to install where there is none: what Debian 12 has.
inline constexpr int kMajorVersionOfDebian = 15;

/// Looks in $FAULTLINE_PG_BINDIR (and then nowhere else), in what pg_config says, in Debian's versioned
/// directories from the newest on, and in PATH. With `cluster_version` only that major version will do:
/// PostgreSQL cannot open a cluster of another.
[[nodiscard]] Expected<Binaries> find_binaries(std::optional<int> cluster_version);

}  // namespace faultline::private_pg
