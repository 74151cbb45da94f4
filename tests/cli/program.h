#pragma once

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {

using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// How to run `faultline`, without the database that the environment of the test may name.
inline ProcessOptions faultline_program(std::vector<std::string> arguments, Environment environment = {}) {
  arguments.insert(arguments.begin(), FAULTLINE_PROGRAM);
  environment.emplace_back("XDG_STATE_HOME", "/nonexistent");
  if (std::ranges::none_of(environment, [](const auto& entry) { return entry.first == "DATABASE_URL"; }))
    environment.emplace_back("DATABASE_URL", std::nullopt);
  return {.argv = std::move(arguments), .environment = std::move(environment)};
}

inline ProcessResult run_faultline(std::vector<std::string> arguments, Environment environment = {}) {
  return run_process(faultline_program(std::move(arguments), std::move(environment)));
}

/// The text must be exactly one JSON object on one line.
inline nlohmann::json one_object(const std::string& text) {
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  auto json = nlohmann::json::parse(text, nullptr, false);
  EXPECT_TRUE(json.is_object()) << text;
  return json;
}

/// The schema `faultline` exists in this database.
inline bool has_schema(const std::string& dsn) {
  auto connection = connect(dsn);
  return query_text(connection, "SELECT count(*)::text FROM pg_namespace WHERE nspname = 'faultline'") == "1";
}

}  // namespace faultline::testing
