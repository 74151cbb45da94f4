// docs/architecture.md does not drift: its tables are compared with the SQL and with the headers.

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Names = std::set<std::string>;
/// Table → which of I, U and D are done to it, in this order.
using Writes = std::map<std::string, std::string>;
using Cells = std::vector<std::string>;

const fs::path kRepository = FAULTLINE_SOURCE_DIR;

// What the SQL does.

void add(Writes& writes, const std::string& table, char act) {
  std::string& acts = writes[table];
  if (acts.contains(act)) return;
  acts += act;
  std::ranges::sort(acts, {}, [](char c) { return std::string_view{"IUD"}.find(c); });
}

void add_all(Writes& writes, const Writes& more) {
  for (const auto& [table, acts] : more)
    for (const char act : acts) add(writes, table, act);
}

std::string without_comments(const std::string& sql) {
  static const std::regex kComment{"--[^\n]*"};
  return std::regex_replace(sql, kComment, "");
}

/// What the text itself writes, without the functions that it calls.
Writes direct_writes(const std::string& sql) {
  static const std::regex kAct{
      R"re((INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+faultline\.(\w+)|DO\s+UPDATE\s+SET)re"};
  Writes writes;
  std::string inserted;  // the table of the last INSERT: an ON CONFLICT belongs to it
  for (std::sregex_iterator it{sql.begin(), sql.end(), kAct}, end; it != end; ++it) {
    if (!(*it)[1].matched) {
      add(writes, inserted, 'U');
      continue;
    }
    const char act = *(*it)[1].first;
    if (act == 'I') inserted = (*it)[2];
    add(writes, (*it)[2], act);
  }
  return writes;
}

class Sql {
 public:
  void add_functions(const std::string& migration) {
    static const std::regex kBody{R"re(\bAS (\$\$|'))re"};
    static const std::regex kFunction{R"re(CREATE\s+(?:OR\s+REPLACE\s+)?FUNCTION\s+faultline\.(\w+))re"};
    const std::string text = without_comments(migration);
    for (std::sregex_iterator it{text.begin(), text.end(), kFunction}, end; it != end; ++it) {
      std::smatch body;
      const auto from = text.cbegin() + it->position() + it->length();
      if (!std::regex_search(from, text.cend(), body, kBody)) continue;
      const std::string quote = body[1];
      const auto begin = static_cast<std::size_t>(body[0].second - text.cbegin());
      functions_[(*it)[1]] = text.substr(begin, text.find(quote, begin) - begin);
    }
  }

  /// What a statement writes, with all that the functions write which it calls.
  [[nodiscard]] Writes writes(const std::string& statement) const {
    Names called;
    return writes(without_comments(statement), called);
  }
  [[nodiscard]] Writes writes_of_function(const std::string& name) const {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return {};
    Names called{name};
    return writes(found->second, called);
  }

 private:
  [[nodiscard]] Writes writes(const std::string& text, Names& called) const {
    static const std::regex kCall{R"re(faultline\.(\w+)\s*\()re"};
    Writes all = direct_writes(text);
    for (std::sregex_iterator it{text.begin(), text.end(), kCall}, end; it != end; ++it) {
      const auto function = functions_.find((*it)[1]);
      if (function != functions_.end() && called.insert(function->first).second)
        add_all(all, writes(function->second, called));
    }
    return all;
  }

  std::map<std::string, std::string> functions_;
};

Names tables_in(const std::string& text) {
  static const std::regex kTable{R"re(CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?faultline\.(\w+))re"};
  Names tables;
  for (std::sregex_iterator it{text.begin(), text.end(), kTable}, end; it != end; ++it)
    tables.insert((*it)[1]);
  return tables;
}

// What the page says.

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// The rows of all tables of a page whose first column has this name; the first row is the heading.
std::vector<Cells> table_of(const std::string& page, const std::string& first_column) {
  std::vector<Cells> rows;
  std::istringstream lines{page};
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) {
      inside = false;
      continue;
    }
    Cells cells;
    std::istringstream columns{line.substr(1)};
    for (std::string cell; std::getline(columns, cell, '|');) cells.push_back(trimmed(cell));
    if (cells.front() == first_column) inside = true;
    if (inside && cells.front() != "---") rows.push_back(cells);
  }
  return rows;
}

/// The words between backticks.
std::vector<std::string> quoted(const std::string& cell) {
  static const std::regex kQuoted{"`([^`]+)`"};
  std::vector<std::string> words;
  for (std::sregex_iterator it{cell.begin(), cell.end(), kQuoted}, end; it != end; ++it)
    words.push_back((*it)[1]);
  return words;
}

struct Matrix {
  std::map<std::string, Writes> verbs;      ///< as the page says
  std::map<std::string, Cells> statements;  ///< of each verb
};

Matrix matrix_of(const std::string& page) {
  Matrix matrix;
  const std::vector<Cells> rows = table_of(page, "verb");
  for (std::size_t row = 1; row < rows.size(); ++row) {
    const std::string& verb = rows[row][0];
    matrix.statements[verb] = quoted(rows[row].at(1));
    for (std::size_t column = 2; column < rows[row].size() && column < rows[0].size(); ++column)
      for (const char act : rows[row][column]) add(matrix.verbs[verb], rows[0][column], act);
  }
  return matrix;
}

std::string page() { return read_file(kRepository / "docs/architecture.md"); }

Sql sql_of_schema() {
  Sql sql;
  for (const char* folder : {"sql/migrations", "sql/functions"})
    for (const auto& entry : fs::directory_iterator(kRepository / folder))
      sql.add_functions(read_file(entry.path()));
  return sql;
}

std::string to_string(const Writes& writes) {
  std::string text;
  for (const auto& [table, acts] : writes) text += " " + table + ":" + acts;
  return text.empty() ? " nothing" : text;
}

/// Where the page's matrix and the statements differ. `statements` has the text of each by its name.
std::vector<std::string> differences(const Matrix& matrix, const Sql& sql,
                                     const std::map<std::string, std::string>& statements) {
  std::vector<std::string> problems;
  Names named;
  for (const auto& [verb, names] : matrix.statements) {
    Writes real;
    for (const std::string& name : names) {
      named.insert(name);
      static const std::regex kCalled{R"re(faultline\.(\w+)\(\))re"};
      std::smatch function;
      const auto statement = statements.find(name);
      if (std::regex_match(name, function, kCalled))
        add_all(real, sql.writes_of_function(function[1]));
      else if (statement == statements.end())
        problems.push_back(verb + ": there is no statement " + name);
      else
        add_all(real, sql.writes(statement->second));
    }
    const auto found = matrix.verbs.find(verb);
    const Writes said = found == matrix.verbs.end() ? Writes{} : found->second;
    if (said != real)
      problems.push_back(verb + ": the page says" + to_string(said) + ", the SQL does" + to_string(real));
  }
  for (const auto& [name, text] : statements) {
    if (!named.contains(name) && !sql.writes(text).empty())
      problems.push_back(name + " writes" + to_string(sql.writes(text)) + " and is in no row");
  }
  return problems;
}

TEST(ArchitecturePageTest, says_which_verb_writes_which_table) {
  const Sql sql = sql_of_schema();
  std::map<std::string, std::string> statements;
  for (const auto& entry : fs::directory_iterator(kRepository / "sql/statements"))
    if (entry.path().extension() == ".sql") statements[entry.path().stem()] = read_file(entry.path());
  const Matrix matrix = matrix_of(page());

  ASSERT_THAT(matrix.statements, Contains(Pair("claim", ElementsAre("jobs_claim"))));
  EXPECT_THAT(differences(matrix, sql, statements), IsEmpty()) << "mend docs/architecture.md";
}

TEST(ArchitecturePageTest, lists_the_tables_of_the_schema) {
  Names real = tables_in(read_file(kRepository / "src/schema/migrator.cc"));
  for (const auto& entry : fs::directory_iterator(kRepository / "sql/migrations"))
    real.merge(tables_in(read_file(entry.path())));
  Names said;
  const std::vector<Cells> rows = table_of(page(), "table");
  for (std::size_t row = 1; row < rows.size(); ++row) said.insert(quoted(rows[row][0]).at(0));

  EXPECT_EQ(said, real) << "mend the list of tables in docs/architecture.md";
}

TEST(ArchitecturePageTest, draws_the_states_that_the_schema_has) {
  static const std::regex kEnum{R"re(CREATE TYPE faultline\.job_state AS ENUM \(([^)]*)\))re"};
  static const std::regex kName{"'(\\w+)'"};
  static const std::regex kArrow{R"re((\S+) --> ([^\s:]+):)re"};
  const std::string core = read_file(kRepository / "sql/migrations/0001_core.sql");
  std::smatch type;
  ASSERT_TRUE(std::regex_search(core, type, kEnum));
  const std::string values = type[1];
  Names real;
  for (std::sregex_iterator it{values.begin(), values.end(), kName}, end; it != end; ++it)
    real.insert((*it)[1]);
  const std::string text = page();
  const std::size_t begin = text.find("stateDiagram-v2");
  ASSERT_NE(begin, std::string::npos);
  const std::string diagram = text.substr(begin, text.find("```", begin) - begin);
  Names drawn;
  for (std::sregex_iterator it{diagram.begin(), diagram.end(), kArrow}, end; it != end; ++it) {
    drawn.insert((*it)[1]);
    drawn.insert((*it)[2]);
  }
  drawn.erase("[*]");

  EXPECT_EQ(drawn, real) << "mend the diagram of states in docs/architecture.md";
}

TEST(ArchitecturePageTest, names_classes_that_stand_where_it_says) {
  static const std::regex kFile{R"re(\]\(\.\./([^)]+)\))re"};
  int classes = 0;
  for (const Cells& row : table_of(page(), "class")) {
    if (row[0] == "class") continue;
    std::smatch file;
    ASSERT_TRUE(std::regex_search(row.at(1), file, kFile)) << row[0];
    const std::string name = quoted(row[0]).at(0);
    EXPECT_TRUE(std::regex_search(read_file(kRepository / file[1].str()),
                                  std::regex{"(class|struct) " + name + "\\b[^;]*\\{"}))
        << name << " is not in " << file[1];
    ++classes;
  }
  EXPECT_GT(classes, 20);
}

// The checks themselves, shown to find what they are for.

TEST(ArchitectureCheckTest, sees_what_a_statement_and_the_functions_it_calls_write) {
  Sql sql;
  sql.add_functions(
      "CREATE FUNCTION faultline.inner_one(a int) RETURNS int LANGUAGE sql AS $$ DELETE FROM faultline.c "
      "$$;\n"
      "CREATE FUNCTION faultline.outer_one() RETURNS int\n    LANGUAGE plpgsql\n    AS $$ SELECT "
      "faultline.inner_one(1) $$;\n");

  EXPECT_THAT(sql.writes("-- UPDATE faultline.x\nWITH a AS (INSERT INTO faultline.b SELECT 1 FROM faultline.d"
                         " FOR UPDATE ON CONFLICT (k) DO UPDATE SET v = 1) SELECT faultline.outer_one()"),
              UnorderedElementsAre(Pair("b", "IU"), Pair("c", "D")));
  EXPECT_THAT(sql.writes_of_function("outer_one"), UnorderedElementsAre(Pair("c", "D")));
  EXPECT_THAT(sql.writes("SELECT 1 FROM faultline.b FOR UPDATE"), IsEmpty());
}

TEST(ArchitectureCheckTest, finds_a_cell_a_statement_and_a_row_that_are_wrong) {
  const Matrix matrix = matrix_of(
      "| verb | statements | a | b |\n| --- | --- | --- | --- |\n"
      "| right | `one` | I | |\n| wrong | `two` | U | |\n| gone | `three` | | |\n");
  const std::map<std::string, std::string> statements{{"one", "INSERT INTO faultline.a SELECT 1"},
                                                      {"two", "DELETE FROM faultline.b"},
                                                      {"four", "UPDATE faultline.a SET x = 1"},
                                                      {"five", "SELECT 1"}};

  EXPECT_THAT(differences(matrix, {}, statements),
              ElementsAre("gone: there is no statement three", "wrong: the page says a:U, the SQL does b:D",
                          "four writes a:U and is in no row"));
}

}  // namespace
}  // namespace faultline::testing
