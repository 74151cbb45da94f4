// The rules that let the same statements run on an engine that shards by bucket, read off the files
// themselves. Every rule is also shown to find a statement that breaks it.

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "support/database.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Reading SQL

/// The words of a statement in lower case, without comments. A string literal is one word, `'…'`.
std::vector<std::string> tokens_of(std::string_view sql) {
  std::vector<std::string> tokens;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = 0; at < sql.size();) {
    const char c = sql[at];
    std::size_t end = at + 1;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      at = end;
      continue;
    }
    if (sql.substr(at, 2) == "--") {
      at = std::min(sql.find('\n', at), sql.size());
      continue;
    }
    if (c == '\'' || c == '"') {
      end = std::min(sql.find(c, at + 1), sql.size() - 1) + 1;
    } else if (is_word(c) || c == '$') {
      while (end < sql.size() && is_word(sql[end])) ++end;
    } else if (sql.substr(at, 2) == "::") {
      end = at + 2;
    }
    std::string token{sql.substr(at, end - at)};
    std::ranges::transform(token, token.begin(),
                           [](unsigned char d) { return static_cast<char>(std::tolower(d)); });
    tokens.push_back(std::move(token));
    at = end;
  }
  return tokens;
}

/// A statement as the rules look at it: words, and how deep in parentheses each stands.
class Statement {
 public:
  explicit Statement(std::string_view sql) : tokens_(tokens_of(sql)), depths_(tokens_.size()) {
    int depth = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] == ")") --depth;
      depths_[i] = depth;
      if (tokens_[i] == "(") ++depth;
    }
  }

  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] int depth(std::size_t i) const { return depths_[i]; }
  [[nodiscard]] std::string word(std::size_t i) const { return i < tokens_.size() ? tokens_[i] : ""; }
  [[nodiscard]] std::string before(std::size_t i, std::size_t by = 1) const {
    return i >= by ? tokens_[i - by] : "";
  }
  [[nodiscard]] bool reads(std::size_t at, const std::vector<std::string>& words) const {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (word(at + i) != words[i]) return false;
    }
    return true;
  }
  /// Where the query ends that the word at `i` is part of: at its closing parenthesis, or at a UNION.
  [[nodiscard]] std::size_t end_of_query(std::size_t i) const {
    for (std::size_t at = i; at < size(); ++at) {
      if (depths_[at] < depths_[i] || (depths_[at] == depths_[i] && tokens_[at] == "union")) return at;
    }
    return size();
  }
  /// The words stand in the same query as the word at `i`, behind it, and in no parentheses of their own.
  [[nodiscard]] bool query_has(std::size_t i, const std::vector<std::string>& words) const {
    const std::size_t end = end_of_query(i);
    for (std::size_t at = i; at < end; ++at) {
      if (depths_[at] == depths_[i] && reads(at, words)) return true;
    }
    return false;
  }
  /// The parenthesis that the word at `i` stands in, or size() for none.
  [[nodiscard]] std::size_t opening(std::size_t i) const {
    for (std::size_t at = i; at-- > 0;) {
      if (tokens_[at] == "(" && depths_[at] == depths_[i] - 1) return at;
    }
    return size();
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<int> depths_;
};

/// A table of Faultline's that a statement names.
struct TableReference {
  std::size_t at = 0;
  std::string table;
  std::string alias;
  bool inserted_into = false;
};

bool is_keyword(const std::string& word) {
  static const std::set<std::string> keywords{
      "where", "on",  "set",   "using",  "cross", "join", "left",      "inner",  "order",  "group",
      "limit", "for", "union", "select", "as",    "from", "returning", "values", "having", "offset"};
  return word.empty() || keywords.contains(word) || std::isalpha(static_cast<unsigned char>(word[0])) == 0;
}

std::vector<TableReference> tables_of(const Statement& sql) {
  std::vector<TableReference> found;
  for (std::size_t i = 0; i + 2 < sql.size(); ++i) {
    if (!sql.reads(i, {"faultline", "."}) || sql.before(i) == "::") continue;
    const bool inserted_into = sql.before(i) == "into";
    if (sql.word(i + 3) == "(" && !inserted_into) continue;  // a function
    std::size_t alias = i + 3;
    if (sql.word(alias) == "as") ++alias;
    const bool has_alias = !is_keyword(sql.word(alias));
    found.push_back({.at = i,
                     .table = sql.word(i + 2),
                     .alias = has_alias ? sql.word(alias) : sql.word(i + 2),
                     .inserted_into = inserted_into});
  }
  return found;
}

// ---- The rules. Each says what is wrong, or nothing.

using Problems = std::vector<std::string>;

void check_inserted_bucket(const Statement& sql, const TableReference& reference, Problems& problems) {
  std::size_t list = reference.at;
  while (list < sql.size() && sql.word(list) != "(") ++list;
  std::size_t behind = list + 1;
  while (behind < sql.size() && sql.depth(behind) > sql.depth(list)) ++behind;
  const bool names_it = sql.word(list + 1) == "bucket";
  const bool gives_it = sql.reads(behind + 1, {"select", "$1", "::", "smallint"}) ||
                        sql.reads(behind + 1, {"values", "(", "$1", "::", "smallint"});
  if (!names_it || !gives_it)
    problems.push_back("INSERT INTO " + reference.table + " does not begin with bucket = $1");
  const bool updates = sql.query_has(reference.at, {"do", "update"});
  if (updates &&
      !sql.query_has(reference.at, {reference.alias, ".", "bucket", "=", "$1", "::", "smallint"})) {
    problems.push_back("ON CONFLICT DO UPDATE of " + reference.table + " has no bucket = $1");
  }
}

void check_buckets(const Statement& sql, Problems& problems) {
  for (const TableReference& reference : tables_of(sql)) {
    if (reference.inserted_into) {
      check_inserted_bucket(sql, reference, problems);
    } else if (!sql.query_has(reference.at, {reference.alias, ".", "bucket", "=", "$1", "::", "smallint"})) {
      problems.push_back(reference.table + " (" + reference.alias + ") is used without bucket = $1");
    }
  }
}

void check_functions(const Statement& sql, Problems& problems) {
  static const std::set<std::string> faultline_functions{
      "clock",          "still_in_time",    "state_after_failure", "backoff",   "shown_state",
      "prune_finished", "drop_resubmitted", "hold_finished",       "purge_dead"};
  static const std::set<std::string> never{"clock_timestamp",
                                           "statement_timestamp",
                                           "transaction_timestamp",
                                           "current_timestamp",
                                           "current_time",
                                           "current_date",
                                           "localtimestamp",
                                           "localtime",
                                           "timeofday",
                                           "gen_random_uuid",
                                           "ctid",
                                           "xmin",
                                           "tableoid",
                                           "setval",
                                           "nextval"};
  static const std::set<std::string> never_called{"now", "random"};
  for (std::size_t i = 0; i < sql.size(); ++i) {
    const std::string word = sql.word(i);
    const bool called = sql.word(i + 1) == "(";
    if (never.contains(word) || (never_called.contains(word) && called))
      problems.push_back(word + " is used");
    if (word.starts_with("pg_advisory") || word.starts_with("pg_try_advisory"))
      problems.push_back("an advisory lock");
    if (called && sql.before(i) == "." && sql.before(i, 2) == "faultline" && sql.before(i, 3) != "into" &&
        sql.before(i, 3) != "::" && !faultline_functions.contains(word)) {
      problems.push_back("faultline." + word + "() is not for statements");
    }
  }
}

void check_locks(const Statement& sql, Problems& problems) {
  for (std::size_t i = 0; i < sql.size(); ++i) {
    const std::string word = sql.word(i);
    if (word == "lock") problems.push_back("LOCK TABLE");
    if ((word == "notify" || word == "pg_notify") && !tables_of(sql).empty()) {
      problems.push_back("NOTIFY inside another statement");
    }
    if (!sql.reads(i, {"skip", "locked"})) continue;
    // Outwards through LATERAL subqueries, to a CTE that is run once.
    std::size_t open = sql.opening(i);
    while (open < sql.size() && sql.before(open) == "lateral") open = sql.opening(open);
    if (open == sql.size() || sql.before(open) != "materialized" || sql.before(open, 2) != "as") {
      problems.push_back("SKIP LOCKED outside of a MATERIALIZED CTE");
    }
  }
}

Problems check_statement(std::string_view text) {
  const Statement sql{text};
  Problems problems;
  check_buckets(sql, problems);
  check_functions(sql, problems);
  check_locks(sql, problems);
  return problems;
}

std::set<int> parameters_in(std::string_view text) {
  std::set<int> numbers;
  for (std::size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const int number = std::atoi(std::string{text.substr(at + 1, 3)}.c_str());
    if (number > 0) numbers.insert(number);
  }
  return numbers;
}

/// The parameters that a header describes; `$1 to $16` describes all between.
std::set<int> described_in(const std::string& header) {
  std::set<int> numbers = parameters_in(header);
  const std::size_t range = header.find(" to $");
  if (range == std::string::npos || std::isdigit(static_cast<unsigned char>(header[range - 1])) == 0)
    return numbers;
  const int first = std::atoi(header.substr(header.rfind('$', range) + 1).c_str());
  const int last = std::atoi(header.substr(range + 5).c_str());
  for (int number = first; number <= last; ++number) numbers.insert(number);
  return numbers;
}

Problems check_header(const std::string& text) {
  std::istringstream lines{text};
  std::string line;
  std::string header;
  std::string body;
  bool says_why = false;
  bool in_header = true;
  while (std::getline(lines, line)) {
    in_header = in_header && line.starts_with("--");
    if (!in_header) {
      body += line + "\n";
      continue;
    }
    header += line + "\n";
    const std::string_view said = std::string_view{line}.substr(2);
    says_why = says_why || (said.size() > 20 && !said.starts_with(" $"));
  }
  Problems problems;
  if (!says_why) problems.push_back("does not begin with a comment that says why");
  std::string code;
  for (const std::string& token : tokens_of(body)) code += token + " ";
  const std::set<int> used = parameters_in(code);
  const std::set<int> described = described_in(header);
  for (const int number : used) {
    if (!described.contains(number)) problems.push_back("does not describe $" + std::to_string(number));
  }
  for (const int number : described) {
    if (!used.contains(number))
      problems.push_back("describes $" + std::to_string(number) + " and does not use it");
  }
  return problems;
}

std::vector<std::filesystem::path> statement_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator{FAULTLINE_STATEMENTS_DIR}) {
    if (entry.path().extension() == ".sql") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

// ---- The files

TEST(StatementsTest, every_statement_file_keeps_the_rules_of_a_sharded_engine) {
  const auto files = statement_files();
  ASSERT_GT(files.size(), 30U);
  for (const auto& file : files) EXPECT_THAT(check_statement(text_of(file)), IsEmpty()) << file.filename();
}

TEST(StatementsTest, every_statement_file_says_why_and_describes_its_parameters) {
  for (const auto& file : statement_files())
    EXPECT_THAT(check_header(text_of(file)), IsEmpty()) << file.filename();
}

TEST(StatementsTest, the_rules_see_the_tables_of_the_real_statements) {
  const Statement claim{text_of(std::filesystem::path{FAULTLINE_STATEMENTS_DIR} / "jobs_claim.sql")};
  std::multiset<std::string> names;
  for (const TableReference& reference : tables_of(claim))
    names.insert(reference.table + " " + reference.alias);

  EXPECT_EQ(names, (std::multiset<std::string>{"grants grants", "jobs j", "jobs j", "queues q", "tallies t",
                                               "tallies tallies"}));
}

// ---- Statements that break the rules

struct BadStatement {
  std::string name;
  std::string sql;
  std::string problem;
};

std::ostream& operator<<(std::ostream& out, const BadStatement& bad) { return out << bad.name; }

class StatementRulesTest : public ::testing::TestWithParam<BadStatement> {};

TEST_P(StatementRulesTest, a_statement_that_breaks_a_rule_is_found) {
  EXPECT_THAT(check_statement(GetParam().sql), Contains(HasSubstr(GetParam().problem)));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, StatementRulesTest,
    ::testing::Values(
        BadStatement{"a_table_without_a_bucket", "SELECT j.id FROM faultline.jobs j WHERE j.id = $2::uuid",
                     "jobs (j)"},
        BadStatement{"a_bucket_of_another_table",
                     "SELECT 1 FROM faultline.jobs j JOIN faultline.queues q ON q.name = j.queue"
                     " WHERE j.bucket = $1::smallint",
                     "queues (q)"},
        BadStatement{"a_bucket_that_is_joined_and_not_given",
                     "SELECT 1 FROM faultline.jobs j JOIN faultline.queues q ON q.bucket = j.bucket"
                     " WHERE j.bucket = $1::smallint",
                     "queues (q)"},
        BadStatement{
            "the_bucket_only_in_the_cte",
            "WITH due AS MATERIALIZED (SELECT j.id FROM faultline.jobs j WHERE j.bucket = $1::smallint)"
            " UPDATE faultline.jobs j SET state = 'running' FROM due WHERE j.id = due.id",
            "jobs (j)"},
        BadStatement{"the_bucket_only_in_a_subquery",
                     "DELETE FROM faultline.jobs j WHERE EXISTS ("
                     "SELECT FROM faultline.jobs j WHERE j.bucket = $1::smallint)",
                     "jobs (j)"},
        BadStatement{"the_bucket_in_one_half_of_a_union",
                     "SELECT j.id FROM faultline.jobs j UNION ALL"
                     " SELECT j.id FROM faultline.jobs j WHERE j.bucket = $1::smallint",
                     "jobs (j)"},
        BadStatement{"a_delete_using_another_table",
                     "DELETE FROM faultline.jobs j USING faultline.ledger l"
                     " WHERE j.bucket = $1::smallint AND j.id = l.job_id",
                     "ledger (l)"},
        BadStatement{"an_insert_whose_bucket_comes_from_a_row",
                     "INSERT INTO faultline.tallies (bucket, queue) SELECT d.bucket, d.queue FROM done d",
                     "INSERT INTO tallies"},
        BadStatement{"an_insert_without_a_bucket",
                     "INSERT INTO faultline.tallies (queue) SELECT $1::smallint", "INSERT INTO tallies"},
        BadStatement{"an_upsert_without_a_bucket",
                     "INSERT INTO faultline.queues AS q (bucket, name) SELECT $1::smallint, $2::text"
                     " ON CONFLICT (bucket, name) DO UPDATE SET paused = true",
                     "ON CONFLICT DO UPDATE of queues"},
        BadStatement{"a_clock_of_its_own", "SELECT clock_timestamp()", "clock_timestamp"},
        BadStatement{"the_clock_of_the_transaction", "SELECT NOW()", "now is used"},
        BadStatement{"the_clock_without_parentheses", "SELECT CURRENT_TIMESTAMP", "current_timestamp"},
        BadStatement{"the_clock_that_is_not_stable", "SELECT faultline.clock_now()", "faultline.clock_now()"},
        BadStatement{"a_random_uuid", "SELECT gen_random_uuid()", "gen_random_uuid"},
        BadStatement{"a_random_number", "SELECT random()", "random is used"},
        BadStatement{"ctid", "DELETE FROM faultline.jobs j WHERE j.bucket = $1::smallint AND j.ctid = $2",
                     "ctid"},
        BadStatement{"an_advisory_lock", "SELECT pg_advisory_xact_lock(1)", "advisory"},
        BadStatement{"a_table_lock", "LOCK TABLE faultline.jobs", "LOCK TABLE"},
        BadStatement{
            "a_notify_for_every_job",
            "SELECT pg_notify('jobs', j.id::text) FROM faultline.jobs j WHERE j.bucket = $1::smallint",
            "NOTIFY"},
        BadStatement{
            "skip_locked_in_a_subquery",
            "UPDATE faultline.jobs j SET state = 'running' WHERE j.bucket = $1::smallint AND j.id IN ("
            "SELECT t.id FROM faultline.jobs t WHERE t.bucket = $1::smallint LIMIT 1 FOR UPDATE SKIP LOCKED)",
            "SKIP LOCKED"},
        BadStatement{"skip_locked_in_a_cte_that_may_be_inlined",
                     "WITH due AS (SELECT j.id FROM faultline.jobs j WHERE j.bucket = $1::smallint"
                     " FOR UPDATE SKIP LOCKED) SELECT 1 FROM due",
                     "SKIP LOCKED"}),
    [](const auto& test) { return test.param.name; });

TEST(StatementRulesTest, a_good_statement_is_let_through) {
  EXPECT_THAT(check_statement("WITH due AS MATERIALIZED (SELECT x.id FROM room CROSS JOIN LATERAL ("
                              "SELECT j.id FROM faultline.jobs AS j WHERE j.bucket = $1::smallint LIMIT 1"
                              " FOR UPDATE SKIP LOCKED) AS x)"
                              " SELECT faultline.clock() AS now, 'now()' FROM due -- random()"),
              IsEmpty());
  EXPECT_THAT(check_statement("NOTIFY faultline"), IsEmpty());
}

TEST(StatementRulesTest, a_header_that_leaves_something_out_is_found) {
  EXPECT_THAT(check_header("SELECT $1::smallint\n"), Contains(HasSubstr("says why")));
  EXPECT_THAT(check_header("-- $1 bucket\nSELECT $1::smallint\n"), Contains(HasSubstr("says why")));
  const std::string why = "-- A reason for this statement to be.\n--\n";
  EXPECT_THAT(check_header(why + "-- $1 bucket\nSELECT $1, $2\n"), Contains("does not describe $2"));
  EXPECT_THAT(check_header(why + "-- $1 bucket  $2 jobs\nSELECT $1\n"),
              Contains("describes $2 and does not use it"));
  EXPECT_THAT(check_header(why + "-- $1 to $3 as elsewhere\nSELECT $1, $2, $3\n"), IsEmpty());
}

// ---- The schema itself

class SchemaRulesTest : public ::testing::Test {
 protected:
  /// What breaks a rule: `SELECT name, what`.
  Problems found_by(std::string_view query) {
    const auto rows = must(sql_.exec({"", query}, {}, soon()));
    Problems problems;
    for (int row = 0; row < rows.rows(); ++row) problems.push_back(rows.get<std::string>(row, 0));
    return problems;
  }
  void script(std::string_view text) { must(sql_.exec_script(text, soon())); }

  // The leading column of every index; for an expression there is none.
  static constexpr std::string_view kIndexesWithoutBucket =
      "SELECT c.relname::text FROM pg_index i"
      "  JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid"
      "  LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]"
      " WHERE t.relnamespace = 'faultline'::regnamespace AND t.relname <> 'migrations'"
      "   AND a.attname IS DISTINCT FROM 'bucket'";
  static constexpr std::string_view kTablesWithoutBucket =
      "SELECT t.relname::text FROM pg_class t"
      " WHERE t.relnamespace = 'faultline'::regnamespace AND t.relkind IN ('r', 'p', 'v', 'm')"
      "   AND t.relname <> 'migrations' AND NOT EXISTS ("
      "       SELECT FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'bucket' AND a.attnotnull)"
      "   AND t.relkind <> 'v'";
  static constexpr std::string_view kTriggers =
      "SELECT g.tgname::text FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid"
      " WHERE t.relnamespace = 'faultline'::regnamespace AND NOT g.tgisinternal"
      " UNION ALL SELECT r.rulename::text FROM pg_rewrite r JOIN pg_class t ON t.oid = r.ev_class"
      " WHERE t.relnamespace = 'faultline'::regnamespace AND r.rulename <> '_RETURN'";
  static constexpr std::string_view kForeignKeysWithoutBucket =
      "SELECT k.conname::text FROM pg_constraint k"
      "  LEFT JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]"
      " WHERE k.contype = 'f' AND k.connamespace = 'faultline'::regnamespace"
      "   AND a.attname IS DISTINCT FROM 'bucket'";

  TestDatabase database_;
  pg::Connection sql_{database_.connect()};
};

TEST_F(SchemaRulesTest, bucket_leads_every_key_and_index_and_nothing_acts_behind_the_statements) {
  EXPECT_THAT(found_by(kTablesWithoutBucket), IsEmpty());
  EXPECT_THAT(found_by(kIndexesWithoutBucket), IsEmpty());
  EXPECT_THAT(found_by(kTriggers), IsEmpty());
  EXPECT_THAT(found_by(kForeignKeysWithoutBucket), IsEmpty());
}

TEST_F(SchemaRulesTest, a_schema_that_breaks_a_rule_is_found) {
  script(
      "CREATE TABLE faultline.lone (id integer PRIMARY KEY);"
      "CREATE TABLE faultline.child (bucket smallint NOT NULL, lone integer REFERENCES faultline.lone);"
      "CREATE INDEX child_expression ON faultline.child ((bucket + 1));"
      "CREATE UNIQUE INDEX child_unique ON faultline.child (lone, bucket);"
      "CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
      "CREATE TRIGGER watches BEFORE INSERT ON faultline.child FOR EACH ROW EXECUTE FUNCTION "
      "pg_temp.nothing();");

  EXPECT_THAT(found_by(kTablesWithoutBucket), Contains("lone"));
  EXPECT_THAT(found_by(kIndexesWithoutBucket),
              ::testing::UnorderedElementsAre("lone_pkey", "child_expression", "child_unique"));
  EXPECT_THAT(found_by(kTriggers), Contains("watches"));
  EXPECT_THAT(found_by(kForeignKeysWithoutBucket), Contains("child_lone_fkey"));
}

}  // namespace
}  // namespace faultline::testing
