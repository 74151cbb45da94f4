// The rules that let the same functions and statements run on an engine that shards by bucket, read off the
// files themselves. Every rule is also shown to find what breaks it.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "schema/sql_text.h"
#include "support/database.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- The rules. Each says what is wrong, or nothing.

using Problems = std::vector<std::string>;

/// How a text names the bucket that it is about.
struct Bucket {
  std::vector<std::string> words;
  std::string name;
};
const Bucket kOfStatement{{"$1", "::", "smallint"}, "$1"};
const Bucket kOfFunction{{"in_bucket"}, "in_bucket"};

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void check_inserted_bucket(const SqlText& sql, const TableReference& reference, const Bucket& bucket,
                           Problems& problems) {
  std::size_t list = reference.at;
  while (list < sql.size() && sql.word(list) != "(") ++list;
  std::size_t behind = list + 1;
  while (behind < sql.size() && sql.depth(behind) > sql.depth(list)) ++behind;
  const bool names_it = sql.word(list + 1) == "bucket";
  const bool gives_it = sql.reads(behind + 1, joined({"select"}, bucket.words)) ||
                        sql.reads(behind + 1, joined({"values", "("}, bucket.words));
  if (!names_it || !gives_it)
    problems.push_back("INSERT INTO " + reference.table + " does not begin with bucket = " + bucket.name);
  const bool updates = sql.query_has(reference.at, {"do", "update"});
  if (updates && !sql.query_has(reference.at, joined({reference.alias, ".", "bucket", "="}, bucket.words))) {
    problems.push_back("ON CONFLICT DO UPDATE of " + reference.table + " has no bucket = " + bucket.name);
  }
}

void check_buckets(const SqlText& sql, const Bucket& bucket, Problems& problems) {
  for (const TableReference& reference : tables_of(sql)) {
    if (reference.inserted_into) {
      check_inserted_bucket(sql, reference, bucket, problems);
    } else if (!sql.query_has(reference.at, joined({reference.alias, ".", "bucket", "="}, bucket.words))) {
      problems.push_back(reference.table + " (" + reference.alias +
                         ") is used without bucket = " + bucket.name);
    }
  }
}

const std::set<std::string>& clocks() {
  static const std::set<std::string> words{
      "clock_timestamp",   "statement_timestamp", "transaction_timestamp",
      "current_timestamp", "current_time",        "current_date",
      "localtimestamp",    "localtime",           "timeofday"};
  return words;
}

/// What no text may use, whatever it is about.
void check_words(const SqlText& sql, Problems& problems) {
  static const std::set<std::string> never{"ctid", "xmin", "tableoid", "setval", "nextval"};
  for (std::size_t i = 0; i < sql.size(); ++i) {
    const std::string word = sql.word(i);
    const bool called = sql.word(i + 1) == "(";
    if (never.contains(word) || clocks().contains(word) || (word == "now" && called))
      problems.push_back(word + " is used");
    if (word.starts_with("pg_advisory") || word.starts_with("pg_try_advisory"))
      problems.push_back("an advisory lock");
    if (word == "lock") problems.push_back("LOCK TABLE");
  }
}

/// A statement that is sent more than once must say the same.
void check_chance(const SqlText& sql, Problems& problems) {
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if (sql.word(i) == "gen_random_uuid" || (sql.word(i) == "random" && sql.word(i + 1) == "("))
      problems.push_back(sql.word(i) + " is used");
  }
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator{directory}) {
    if (entry.path().extension() == ".sql") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}
std::vector<std::filesystem::path> statement_files() { return files_of(FAULTLINE_SQL_DIR "/statements"); }
std::vector<std::filesystem::path> function_files() { return files_of(FAULTLINE_SQL_DIR "/functions"); }

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

// ---- Statements

void check_calls(const SqlText& sql, Problems& problems) {
  static const std::set<std::string> expressions{"clock", "shown_state"};
  static const std::set<std::string> verbs = [] {
    std::set<std::string> names;
    for (const auto& file : function_files()) {
      if (text_of(file).find("GRANT EXECUTE") != std::string::npos) names.insert(file.stem());
    }
    return names;
  }();
  for (std::size_t i = 3; i < sql.size(); ++i) {
    const std::string word = sql.word(i);
    const bool called = sql.word(i + 1) == "(" && sql.before(i) == "." && sql.before(i, 2) == "faultline" &&
                        sql.before(i, 3) != "into" && sql.before(i, 3) != "::";
    if (!called || expressions.contains(word)) continue;
    if (!verbs.contains(word)) problems.push_back("faultline." + word + "() is not for statements");
    // A verb is delegated whole to the node that owns the bucket: its first argument.
    if (!sql.reads(i + 2, kOfStatement.words))
      problems.push_back("faultline." + word + "() is not called with the bucket");
  }
}

Problems check_statement(std::string_view text) {
  const SqlText sql{text};
  Problems problems;
  check_buckets(sql, kOfStatement, problems);
  check_words(sql, problems);
  check_chance(sql, problems);
  check_calls(sql, problems);
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if ((sql.word(i) == "notify" || sql.word(i) == "pg_notify") && !tables_of(sql).empty())
      problems.push_back("NOTIFY inside another statement");
    if (sql.reads(i, {"skip", "locked"}))
      problems.push_back("SKIP LOCKED in a statement: verbs are functions");
  }
  return problems;
}

// ---- Functions

/// SKIP LOCKED where it is run once: at the top, or in a FROM of it, through LATERAL subqueries. As IN (…) or
/// EXISTS (…) or as a CTE that may be inlined, a subquery may be run again and lock more rows than were asked
/// for.
void check_locks(const SqlText& sql, Problems& problems) {
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if (sql.reads(i, {"for", "update", "of"}))
      problems.push_back("FOR UPDATE OF: lock in a subquery of one table");
    if (!sql.reads(i, {"skip", "locked"})) continue;
    std::size_t open = sql.opening(i);
    while (open < sql.size() && (sql.before(open) == "lateral" || sql.before(open) == "from"))
      open = sql.opening(open);
    if (open < sql.size()) problems.push_back("SKIP LOCKED in a subquery that may run twice");
  }
}

/// The first of these words behind `i` in the same query.
std::size_t next_of(const SqlText& sql, std::size_t i, const std::set<std::string>& words) {
  const std::size_t end = sql.end_of_query(i);
  for (std::size_t at = i + 1; at < end; ++at) {
    if (sql.depth(at) == sql.depth(i) && words.contains(sql.word(at))) return at;
  }
  return end;
}

void check_writes(const SqlText& sql, Problems& problems) {
  static const std::set<std::string> unsteady{"interval", "clock",      "clock_now",
                                              "extract",  "date_trunc", "to_char"};
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if (sql.word(i) == "insert" && sql.before(i) == "(" && sql.before(i, 2) == "as")
      problems.push_back("INSERT inside of a CTE");
    if (sql.word(i) == "set") {
      const std::size_t end = next_of(sql, i, {"from", "where", "returning"});
      for (std::size_t at = i; at < end; ++at) {
        if (unsteady.contains(sql.word(at))) problems.push_back("SET computes with " + sql.word(at));
      }
    }
    if (sql.word(i) == "values") {
      const std::size_t end = next_of(sql, i, {"on", "returning"});
      for (std::size_t at = i; at < end; ++at) {
        if (sql.word(at) == "select") problems.push_back("VALUES with a subquery");
      }
    }
    if (sql.word(i) == "returning") {
      for (std::size_t at = i; at < sql.end_of_query(i); ++at) {
        if (sql.reads(at, {"::", "text"}) && sql.before(at) != "null")
          problems.push_back("RETURNING casts to text");
      }
    }
  }
}

/// Rows that a DELETE of the same function took from the same bucket go back as they were.
bool is_put_back(const SqlText& sql) {
  return sql.excerpt() == "insert into faultline . jobs select e . * from unnest (";
}

Problems check_function(const std::string& name, const std::string& text) {
  Problems problems;
  const SqlText whole{text};
  const bool is_verb = text.find("/*verb*/") != std::string::npos;
  const bool is_granted =
      text.find("GRANT EXECUTE ON FUNCTION faultline." + name + " TO ") != std::string::npos;
  const bool has_bucket = text.find("faultline." + name + "(in_bucket smallint") != std::string::npos ||
                          text.find("faultline." + name + "(\n    in_bucket smallint") != std::string::npos;
  if (!text.starts_with("-- ")) problems.push_back("does not begin with a comment that says why");
  if (is_verb && !is_granted) problems.push_back("is a verb that nobody may call");
  if (!is_verb && is_granted) problems.push_back("may be called, and is no verb");
  if (!is_verb && text.find("SECURITY DEFINER") != std::string::npos)
    problems.push_back("has the owner's rights without the settings of a verb");

  const SqlText body{body_of(text)};
  // Ids carry the moment of their making, and an announcement is none of a job's facts.
  if (name != "announce" && name != "new_id") check_words(body, problems);
  if (name != "announce" && (body.has("notify") || body.has("pg_notify")))
    problems.push_back("NOTIFY beside announce");

  for (const SqlText& sql : inner_statements(body_of(text))) {
    const auto tables = tables_of(sql);
    if (tables.empty()) continue;
    check_chance(sql, problems);
    check_locks(sql, problems);
    check_writes(sql, problems);
    if (has_bucket) {
      if (!is_put_back(sql)) check_buckets(sql, kOfFunction, problems);
      continue;
    }
    for (const TableReference& reference : tables) {
      // What every bucket has a row of, to find the bucket.
      const bool may_be_read = reference.table == "meta" || reference.table == "queues";
      if (!may_be_read || reference.inserted_into || sql.word(0) == "update" || sql.word(0) == "delete")
        problems.push_back("uses " + reference.table + " and does not begin with in_bucket");
    }
  }
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
  for (const Word& word : words_of(body)) code += word.text + " ";
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

TEST(FunctionsTest, every_function_file_keeps_the_rules_of_a_sharded_engine) {
  const auto files = function_files();
  ASSERT_GT(files.size(), 50U);
  for (const auto& file : files)
    EXPECT_THAT(check_function(file.stem(), text_of(file)), IsEmpty()) << file.filename();
}

TEST(FunctionsTest, the_rules_see_the_tables_of_the_real_functions) {
  std::multiset<std::string> names;
  for (const SqlText& sql :
       inner_statements(body_of(text_of(FAULTLINE_SQL_DIR "/functions/claim_jobs.sql")))) {
    for (const TableReference& reference : tables_of(sql))
      names.insert(reference.table + " " + reference.alias);
  }

  EXPECT_EQ(names, (std::multiset<std::string>{"grants g", "jobs j", "jobs j", "queues q", "queues q",
                                               "queues q", "queues q", "tallies t", "tallies tallies"}));
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
        BadStatement{"a_function_that_verbs_call", "SELECT faultline.clock_now()", "is not for statements"},
        BadStatement{"a_verb_of_another_bucket",
                     "SELECT * FROM faultline.prune_jobs(0::smallint, $2::bigint)",
                     "is not called with the bucket"},
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
        BadStatement{"skip_locked",
                     "SELECT j.id FROM faultline.jobs j WHERE j.bucket = $1::smallint FOR UPDATE SKIP LOCKED",
                     "SKIP LOCKED"}),
    [](const auto& test) { return test.param.name; });

/// A verb that consists of these statements.
std::string verb_of(const std::string& statements) {
  return "-- A reason for this function to be.\n"
         "CREATE OR REPLACE FUNCTION faultline.f(in_bucket smallint, in_id uuid) RETURNS void\n    "
         "/*verb*/\n    AS $$\n"
         "BEGIN\n" +
         statements + "\nEND\n$$;\nGRANT EXECUTE ON FUNCTION faultline.f TO faultline_owner;\n";
}

class FunctionRulesTest : public ::testing::TestWithParam<BadStatement> {};

TEST_P(FunctionRulesTest, a_function_that_breaks_a_rule_is_found) {
  EXPECT_THAT(check_function("f", verb_of(GetParam().sql)), Contains(HasSubstr(GetParam().problem)));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, FunctionRulesTest,
    ::testing::Values(
        BadStatement{"a_table_without_a_bucket", "PERFORM FROM faultline.jobs j WHERE j.id = in_id;",
                     "jobs (j)"},
        BadStatement{"a_bucket_in_the_next_statement",
                     "DELETE FROM faultline.jobs j WHERE j.id = in_id;"
                     " PERFORM FROM faultline.jobs j WHERE j.bucket = in_bucket;",
                     "jobs (j)"},
        BadStatement{"a_bucket_that_is_joined_and_not_given",
                     "PERFORM FROM faultline.jobs j JOIN faultline.queues q ON q.bucket = j.bucket"
                     " WHERE j.bucket = in_bucket;",
                     "queues (q)"},
        BadStatement{"a_condition_without_a_bucket",
                     "IF EXISTS (SELECT FROM faultline.jobs j WHERE j.id = in_id) THEN RETURN; END IF;",
                     "jobs (j)"},
        BadStatement{"a_loop_without_a_bucket",
                     "FOR one IN SELECT j.id FROM faultline.jobs j LOOP PERFORM 1; END LOOP;", "jobs (j)"},
        BadStatement{"an_assignment_without_a_bucket", "ids := ARRAY(SELECT j.id FROM faultline.jobs j);",
                     "jobs (j)"},
        BadStatement{
            "an_insert_whose_bucket_comes_from_a_row",
            "INSERT INTO faultline.tallies (bucket, queue) SELECT d.bucket, d.queue FROM unnest(rows) AS d;",
            "INSERT INTO tallies"},
        BadStatement{"an_insert_without_a_bucket",
                     "INSERT INTO faultline.tallies (queue, bucket) VALUES ('q', in_bucket);",
                     "INSERT INTO tallies"},
        BadStatement{"an_insert_of_whole_rows",
                     "INSERT INTO faultline.ledger SELECT e.* FROM unnest(rows) AS e;", "INSERT INTO ledger"},
        BadStatement{"an_upsert_without_a_bucket",
                     "INSERT INTO faultline.queues AS q (bucket, name) VALUES (in_bucket, 'q')"
                     " ON CONFLICT (bucket, name) DO UPDATE SET paused = true;",
                     "ON CONFLICT DO UPDATE of queues"},
        BadStatement{
            "an_insert_in_a_cte",
            "WITH made AS (INSERT INTO faultline.tallies (bucket, queue) VALUES (in_bucket, 'q') RETURNING 1)"
            " SELECT count(*) INTO n FROM made;",
            "INSERT inside of a CTE"},
        BadStatement{
            "an_update_that_computes_times",
            "UPDATE faultline.jobs j SET run_at = j.run_at + interval '1 second' WHERE j.bucket = in_bucket;",
            "SET computes with interval"},
        BadStatement{"an_update_that_asks_the_clock",
                     "UPDATE faultline.jobs j SET run_at = faultline.clock() WHERE j.bucket = in_bucket;",
                     "SET computes with clock"},
        BadStatement{
            "an_upsert_that_computes_times",
            "INSERT INTO faultline.queues AS q (bucket, name) VALUES (in_bucket, 'q') ON CONFLICT (bucket, "
            "name)"
            " DO UPDATE SET updated_at = q.updated_at + interval '1 second' WHERE q.bucket = in_bucket;",
            "SET computes with interval"},
        BadStatement{
            "an_enum_as_text",
            "RETURN QUERY DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket RETURNING j.state::text;",
            "RETURNING casts"},
        BadStatement{"a_subquery_in_values",
                     "INSERT INTO faultline.tallies (bucket, queue) VALUES (in_bucket, (SELECT q.name FROM"
                     " faultline.queues q WHERE q.bucket = in_bucket LIMIT 1));",
                     "VALUES with a subquery"},
        BadStatement{"for_update_of",
                     "PERFORM FROM faultline.jobs j CROSS JOIN unnest(ids) AS u WHERE j.bucket = in_bucket "
                     "FOR UPDATE OF j;",
                     "FOR UPDATE OF"},
        BadStatement{"skip_locked_in_a_condition",
                     "UPDATE faultline.jobs j SET state = 'running' WHERE j.bucket = in_bucket AND j.id IN "
                     "(SELECT t.id FROM"
                     " faultline.jobs t WHERE t.bucket = in_bucket LIMIT 1 FOR UPDATE SKIP LOCKED);",
                     "SKIP LOCKED"},
        BadStatement{"skip_locked_in_a_cte",
                     "WITH due AS (SELECT j.id FROM faultline.jobs j WHERE j.bucket = in_bucket FOR UPDATE "
                     "SKIP LOCKED)"
                     " SELECT count(*) INTO n FROM due;",
                     "SKIP LOCKED"},
        BadStatement{"a_notify", "PERFORM pg_notify('faultline_jobs', 'q');", "NOTIFY"},
        BadStatement{"a_clock_of_its_own", "time_now := clock_timestamp();", "clock_timestamp"},
        BadStatement{"the_clock_of_the_transaction", "time_now := now();", "now is used"},
        BadStatement{"a_random_uuid",
                     "UPDATE faultline.jobs j SET lease_id = gen_random_uuid() WHERE j.bucket = in_bucket;",
                     "gen_random_uuid"},
        BadStatement{"ctid", "DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.ctid = place;",
                     "ctid"},
        BadStatement{"an_advisory_lock", "PERFORM pg_advisory_xact_lock(1);", "advisory"},
        BadStatement{"a_table_lock", "LOCK TABLE faultline.jobs;", "LOCK TABLE"}),
    [](const auto& test) { return test.param.name; });

TEST(FunctionRulesTest, what_a_function_is_declared_as_is_looked_at) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = verb_of("PERFORM FROM faultline.jobs j WHERE j.bucket = in_bucket;");
    text.replace(text.find(from), from.size(), to);
    return check_function("f", text);
  };

  EXPECT_THAT(changed("-- A reason for this function to be.\n", ""), Contains(HasSubstr("says why")));
  EXPECT_THAT(changed("GRANT EXECUTE ON FUNCTION faultline.f TO faultline_owner;", ""),
              Contains(HasSubstr("nobody may call")));
  EXPECT_THAT(changed("/*verb*/", "LANGUAGE plpgsql"), Contains(HasSubstr("no verb")));
  EXPECT_THAT(changed("/*verb*/", "LANGUAGE plpgsql SECURITY DEFINER"),
              Contains(HasSubstr("the owner's rights")));
  EXPECT_THAT(changed("in_bucket smallint, in_id uuid", "in_id uuid"),
              Contains("uses jobs and does not begin with in_bucket"));
}

TEST(FunctionRulesTest, a_good_function_is_let_through) {
  EXPECT_THAT(check_function("f", verb_of(R"sql(
    -- Not now().
    IF EXISTS (SELECT FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = in_id) THEN
        time_now := faultline.clock_now() + CASE WHEN true THEN interval '1 second' END;
    END IF;
    SELECT array_agg(due.id) INTO ids
      FROM (SELECT x.id FROM unnest(in_ids) AS u(id) CROSS JOIN LATERAL (
                   SELECT j.id FROM faultline.jobs AS j WHERE j.bucket = in_bucket AND j.id = u.id LIMIT 1
                      FOR UPDATE SKIP LOCKED) AS x
             LIMIT 1) AS due;
    INSERT INTO faultline.grants AS g (bucket, lease_id) VALUES (in_bucket, in_id)
    ON CONFLICT (bucket, lease_id) DO UPDATE SET check_at = time_now WHERE g.bucket = in_bucket;
    WITH taken AS (DELETE FROM faultline.tallies t WHERE t.bucket = in_bucket RETURNING t.queue, NULL::text)
    SELECT count(*) INTO n FROM taken;)sql")),
              IsEmpty());
}

TEST(StatementRulesTest, a_good_statement_is_let_through) {
  EXPECT_THAT(
      check_statement("WITH due AS MATERIALIZED (SELECT x.id FROM room CROSS JOIN LATERAL ("
                      "SELECT j.id FROM faultline.jobs AS j WHERE j.bucket = $1::smallint LIMIT 1) AS x)"
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
      " WHERE t.relnamespace = 'faultline'::regnamespace AND t.relname NOT IN ('migrations', 'functions')"
      "   AND a.attname IS DISTINCT FROM 'bucket'";
  static constexpr std::string_view kTablesWithoutBucket =
      "SELECT t.relname::text FROM pg_class t"
      " WHERE t.relnamespace = 'faultline'::regnamespace AND t.relkind IN ('r', 'p', 'v', 'm')"
      "   AND t.relname NOT IN ('migrations', 'functions') AND NOT EXISTS ("
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
