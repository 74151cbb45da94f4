// What is written about the metrics beside the code: the reference, the alert rules and the dashboard.

#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "metrics/table.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kSource{FAULTLINE_SOURCE_DIR};

std::string row_of(const metrics::Entry& entry) {
  std::string labels;
  for (const std::string_view label : entry.labels) {
    if (!label.empty()) labels += (labels.empty() ? "`" : " `") + std::string{label} + "`";
  }
  return "| `" + std::string{entry.name} + "` | " + std::string{to_string(entry.type)} + " | " +
         (labels.empty() ? "-" : labels) + " | " + std::string{entry.help} + " |\n";
}

/// The metrics that a text names and that do not exist.
std::set<std::string> unknown_metrics(const std::string& text) {
  std::set<std::string> known;
  for (const metrics::Entry& entry : metrics::kTable) {
    known.emplace(entry.name);
    if (entry.type != metrics::Type::histogram) continue;
    for (const std::string suffix : {"_bucket", "_sum", "_count"})
      known.insert(std::string{entry.name} + suffix);
  }
  std::set<std::string> unknown;
  const std::regex name{"\\bfaultline_[a-z_]+"};
  for (std::sregex_iterator found{text.begin(), text.end(), name}; found != std::sregex_iterator{}; ++found) {
    if (!known.contains(found->str())) unknown.insert(found->str());
  }
  return unknown;
}

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex regex{pattern};
  std::vector<std::string> found;
  for (std::sregex_iterator at{text.begin(), text.end(), regex}; at != std::sregex_iterator{}; ++at)
    found.push_back((*at)[1].str());
  return found;
}

TEST(MetricsReferenceTest, it_has_one_row_for_each_metric_of_the_table) {
  const std::string page = read_file(kSource / "docs/reference/metrics.md");
  for (const metrics::Entry& entry : metrics::kTable) EXPECT_THAT(page, HasSubstr(row_of(entry)));
  EXPECT_EQ(all_of(page, "\n\\| `(faultline_[a-z_]+)` \\| (?:counter|gauge|histogram)").size(),
            metrics::kTable.size());
}

TEST(MetricsOpsTest, alerts_and_dashboard_name_only_metrics_that_exist) {
  EXPECT_THAT(unknown_metrics("rate(faultline_jobs_settled_totals[5m])"), ::testing::SizeIs(1));
  for (const std::string file : {"ops/prometheus/alerts.yml", "ops/prometheus/alerts_test.yml"})
    EXPECT_THAT(unknown_metrics(read_file(kSource / file)), IsEmpty()) << file;
  const auto dashboard = nlohmann::json::parse(read_file(kSource / "ops/grafana/faultline.json"));
  EXPECT_THAT(unknown_metrics(dashboard.dump()), IsEmpty());
  std::set<int> ids;
  for (const auto& panel : dashboard.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << panel.at("title");
    EXPECT_TRUE(panel.at("type") == "row" || !panel.at("targets").empty()) << panel.at("title");
  }
}

TEST(MetricsOpsTest, every_alert_says_what_to_do_and_is_tested) {
  const std::string alerts = read_file(kSource / "ops/prometheus/alerts.yml");
  const std::string tests = read_file(kSource / "ops/prometheus/alerts_test.yml");
  const auto names = all_of(alerts, "- alert: (\\w+)");
  ASSERT_GT(names.size(), 10U);
  for (const std::string field : {"summary", "description", "runbook", "severity"})
    EXPECT_EQ(all_of(alerts, "\n +(" + field + "): ").size(), names.size()) << field;
  const std::string operations = read_file(kSource / "docs/operations.md");
  for (const std::string& name : names) {
    std::string anchor = name;
    std::ranges::transform(anchor, anchor.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    EXPECT_THAT(alerts, HasSubstr("runbook: docs/operations.md#" + anchor + "\n"));
    EXPECT_GE(all_of(tests, "(alertname[:=] ?\"?" + name + "\\b)").size(), 2U)
        << name << " fires, and is quiet";
    EXPECT_TRUE(operations.contains("# " + name + "\n")) << name << " has no section in docs/operations.md";
  }
}

TEST(MetricsOpsTest, promtool_finds_rules_and_configuration_good_and_their_tests_pass) {
  const auto promtool = [](std::vector<std::string> words) {
    words.insert(words.begin(), "promtool");
    return run_process({.argv = std::move(words), .directory = (kSource / "ops/prometheus").string()});
  };
  for (const std::vector<std::string>& words : {std::vector<std::string>{"check", "rules", "alerts.yml"},
                                                {"check", "config", "prometheus.yml"},
                                                {"test", "rules", "alerts_test.yml"}}) {
    const ProcessResult result = promtool(words);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
}

}  // namespace
}  // namespace faultline::testing
