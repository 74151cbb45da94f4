// What the documentation quotes is what the files say, so that it cannot drift. A quoted block names its
// source in a comment in the line above it:
//
//   <!-- quote examples/hello.cc -->                 the whole file
//   <!-- quote examples/hello.cc from "X" to "Y" --> from the line that has X in it to the next that has Y in
//   it
//
// Lines that are indented alike in the file may stand without their indentation in the document.

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>

#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string without_indentation(const Lines& lines) {
  std::size_t common = std::string::npos;
  for (const std::string& line : lines) {
    if (!line.empty()) common = std::min(common, line.find_first_not_of(' '));
  }
  std::string text;
  for (const std::string& line : lines) text += (line.empty() ? "" : line.substr(common)) + "\n";
  return text;
}

/// The lines from the first that has `from` in it to the next that begins with `to`, indented alike. None if
/// there are no such.
Lines part_of(const Lines& file, const std::string& from, const std::string& to) {
  const auto has_from = [&](const std::string& line) { return line.find(from) != std::string::npos; };
  const auto first = std::ranges::find_if(file, has_from);
  if (first == file.end()) return {};
  const std::string last_begins = first->substr(0, first->find_first_not_of(' ')) + to;
  const auto is_last = [&](const std::string& line) {
    return to.ends_with('$') ? line + '$' == last_begins : line.starts_with(last_begins);
  };
  const auto last = std::find_if(first, file.end(), is_last);
  return last == file.end() ? Lines{} : Lines{first, last + 1};
}

struct Findings {
  int quotes = 0;
  std::vector<std::string> problems;
};

/// Checks every quotation in a document against the files below `root`.
Findings check_quotes(const fs::path& root, const std::string& name, const std::string& document) {
  static const std::regex mark{R"re(<!-- quote (\S+)(?: from "(.+)" to "(.+)")? -->)re"};
  Findings findings;
  const Lines lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string where = name + ":" + std::to_string(i + 1) + ": ";
    std::smatch match;
    if (!std::regex_match(lines[i], match, mark)) {
      if (lines[i].find("<!-- quote") != std::string::npos)
        findings.problems.push_back(where + "not a mark of a quotation");
      continue;
    }
    ++findings.quotes;
    const Lines file = lines_of(read_file(root / match[1].str()));
    const Lines source = match[2].matched ? part_of(file, match[2], match[3]) : file;
    Lines quoted;
    std::size_t at = i + 2;
    while (at < lines.size() && lines[at] != "```") quoted.push_back(lines[at++]);
    if (i + 1 >= lines.size() || !lines[i + 1].starts_with("```") || at >= lines.size())
      findings.problems.push_back(where + "no block follows");
    else if (source.empty())
      findings.problems.push_back(where + "there is no such text in " + match[1].str());
    else if (without_indentation(source) != without_indentation(quoted))
      findings.problems.push_back(where + "differs from " + match[1].str() + ", which says:\n" +
                                  without_indentation(source));
  }
  return findings;
}

Lines documents() {
  Lines found{"README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(FAULTLINE_SOURCE_DIR "/docs")) {
    if (entry.path().extension() == ".md")
      found.push_back(fs::relative(entry.path(), FAULTLINE_SOURCE_DIR).string());
  }
  return found;
}

TEST(QuotesTest, every_quotation_in_the_documentation_is_what_the_file_says) {
  int quotes = 0;
  for (const std::string& name : documents()) {
    const std::string text = read_file(fs::path{FAULTLINE_SOURCE_DIR} / name);
    const Findings findings = check_quotes(FAULTLINE_SOURCE_DIR, name, text);
    for (const std::string& problem : findings.problems) ADD_FAILURE() << problem;
    quotes += findings.quotes;
  }
  EXPECT_GT(quotes, 10);
}

TEST(QuotesTest, every_link_to_a_file_leads_to_one) {
  static const std::regex link{R"re(\]\(([^)#:]+)(#[^)]*)?\))re"};
  static const std::regex code_span{"`[^`]*`"};
  int links = 0;
  for (const std::string& name : documents()) {
    const fs::path path = fs::path{FAULTLINE_SOURCE_DIR} / name;
    bool code = false;
    for (const std::string& whole : lines_of(read_file(path))) {
      if (whole.find("```") != std::string::npos) code = !code;
      if (code) continue;
      const std::string line = std::regex_replace(whole, code_span, "");
      for (std::sregex_iterator it{line.begin(), line.end(), link}, end; it != end; ++it, ++links) {
        EXPECT_TRUE(fs::exists(path.parent_path() / (*it)[1].str())) << name << " links to " << (*it)[1];
      }
    }
  }
  EXPECT_GT(links, 30);
}

TEST(QuotesTest, every_example_is_quoted_or_named_somewhere) {
  std::string all;
  for (const std::string& name : documents()) all += read_file(fs::path{FAULTLINE_SOURCE_DIR} / name);
  for (const auto& entry : fs::directory_iterator(FAULTLINE_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".cc") continue;
    EXPECT_THAT(all, HasSubstr("examples/" + entry.path().filename().string()));
  }
}

// The check itself, shown to find what it is for.

class QuoteCheckTest : public ::testing::Test {
 protected:
  QuoteCheckTest() { write_file(scratch_ / "a.cc", "one\n  two\n\n  three\nfour\n"); }
  Lines problems(const std::string& document) {
    return check_quotes(scratch_.path(), "d", document).problems;
  }

  ScratchDir scratch_;
};

TEST_F(QuoteCheckTest, takes_what_is_there) {
  EXPECT_THAT(problems("<!-- quote a.cc -->\n```cpp\none\n  two\n\n  three\nfour\n```\n"), IsEmpty());
  EXPECT_THAT(problems("<!-- quote a.cc from \"two\" to \"three\" -->\n```\ntwo\n\nthree\n```\n"), IsEmpty());
  EXPECT_EQ(check_quotes(scratch_.path(), "d", "nothing\n").quotes, 0);
}

TEST_F(QuoteCheckTest, finds_every_way_to_drift) {
  const Lines documents{
      "<!-- quote a.cc -->\n```cpp\none\n  two\n\n  three\n```\n",              // a line less
      "<!-- quote a.cc from \"two\" to \"three\" -->\n```\ntwo\nthree\n```\n",  // an empty line less
      "<!-- quote a.cc from \"two\" to \"three\" -->\n```\ntwo\n\nthre\n```\n",
      "<!-- quote a.cc from \"two\" to \"five\" -->\n```\ntwo\n\nthree\n```\n",
      "<!-- quote b.cc -->\n```\n```\n",
      "<!-- quote a.cc -->\n\n```\none\n```\n",
      "<!-- quote a.cc -->\n```\none\n",
      "<!-- quote a.cc from two -->\n```\ntwo\n```\n",
  };
  for (const std::string& document : documents) EXPECT_EQ(problems(document).size(), 1U) << document;
}

}  // namespace
}  // namespace faultline::testing
