// The documentation does not drift: the reference is what the program says, and links lead somewhere.

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

const fs::path kRoot = FAULTLINE_SOURCE_DIR;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Where two texts part, for people.
std::string first_difference(const std::string& file, const std::string& program) {
  const Lines there = lines_of(file);
  const Lines here = lines_of(program);
  const auto [left, right] = std::ranges::mismatch(there, here);
  const std::string number = std::to_string(left - there.begin() + 1);
  return "line " + number + " of the file:  " + (left == there.end() ? "(its end)" : *left) + "\n" +
         "the program says: " + (right == here.end() ? "(its end)" : *right) + "\n";
}

class ReferenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceTest, is_what_the_program_says) {
  const std::string page = GetParam();
  const std::string name = "docs/reference/" + page + ".md";
  const ProcessResult made = run_faultline({"reference", page, "--descriptors", FAULTLINE_DESCRIPTORS});
  ASSERT_EQ(made.exit_code, 0) << made.err;

  const std::string file = fs::exists(kRoot / name) ? read_file(kRoot / name) : "";

  EXPECT_TRUE(file == made.out) << name << " has drifted. Run: ./dev docs\n"
                                << first_difference(file, made.out);
}

INSTANTIATE_TEST_SUITE_P(Each, ReferenceTest, ::testing::Values("cli", "configuration", "http", "grpc"),
                         [](const auto& page) { return std::string{page.param}; });

/// The text without blocks of code, whose brackets are no links and whose # are no headings.
Lines prose_of(const std::string& text) {
  Lines prose;
  bool code = false;
  for (const std::string& line : lines_of(text)) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, 3, "```") == 0)
      code = !code;
    else if (!code)
      prose.push_back(line);
  }
  return prose;
}

/// The name under which a heading can be linked to: as the usual renderers of Markdown make it.
std::string anchor_of(const std::string& heading) {
  static const std::regex kLink{R"re(\[([^\]]*)\]\([^)]*\))re"};
  std::string anchor;
  for (const char c : std::regex_replace(heading, kLink, "$1")) {
    if (c == ' ')
      anchor += '-';
    else if (c >= 'A' && c <= 'Z')
      anchor += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || (c & '\x80') != 0)
      anchor += c;
  }
  return anchor;
}

std::set<std::string> anchors_of(const std::string& text) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  for (const std::string& line : prose_of(text)) {
    const std::size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || level > 6 || line[level] != ' ') continue;
    const std::string anchor = anchor_of(line.substr(level + 1));
    const int before = seen[anchor]++;
    anchors.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return anchors;
}

struct Findings {
  int links = 0;
  Lines problems;
};

/// Every relative link of a document: is there such a file, and such a heading in it?
Findings check_links(const fs::path& root, const std::string& name) {
  static const std::regex kLink{R"re(\]\(([^)\s]+)\))re"};
  static const std::regex kCode{"`[^`]*`"};
  Findings findings;
  for (const std::string& whole : prose_of(read_file(root / name))) {
    const std::string line = std::regex_replace(whole, kCode, "");
    for (std::sregex_iterator it{line.begin(), line.end(), kLink}, end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.contains("://") || target.starts_with("mailto:")) continue;
      ++findings.links;
      const std::size_t hash = std::min(target.find('#'), target.size());
      const fs::path file = hash == 0 ? root / name : (root / name).parent_path() / target.substr(0, hash);
      if (!fs::exists(file))
        findings.problems.push_back(name + " links to " + target + ", and there is no such file");
      else if (hash < target.size() && file.extension() == ".md" &&
               !anchors_of(read_file(file)).contains(target.substr(hash + 1)))
        findings.problems.push_back(name + " links to " + target + ", and there is no such heading");
    }
  }
  return findings;
}

Lines documents() {
  Lines found{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"};
  for (const std::string folder : {"docs", "ops", "bench", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".md") found.push_back(fs::relative(entry.path(), kRoot).string());
    }
  }
  return found;
}

TEST(LinksTest, every_relative_link_in_the_documentation_leads_to_a_file_and_a_heading) {
  int links = 0;
  for (const std::string& name : documents()) {
    const Findings findings = check_links(kRoot, name);
    for (const std::string& problem : findings.problems) ADD_FAILURE() << problem;
    links += findings.links;
  }
  EXPECT_GT(links, 100);
}

TEST(LinksTest, every_page_of_the_reference_is_in_its_list) {
  const std::string list = read_file(kRoot / "docs/reference/README.md");
  for (const auto& entry : fs::directory_iterator(kRoot / "docs/reference")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "README.md" || list.contains("(" + name + ")")) << name;
  }
}

// The check itself, shown to find what it is for.

TEST(LinkCheckTest, finds_files_and_headings_that_are_not_there_and_nothing_else) {
  const ScratchDir scratch;
  write_file(scratch / "other.md", "# One `two`, three\n## Same\n## Same\n```\n# in code\n```\n");
  write_file(scratch / "good.md",
             "# Here\n[a](other.md) [b](other.md#one-two-three) [c](other.md#same-1) [d](#here) [e](.)\n"
             "[f](https://example.com/nowhere) `[g](no.md)`\n```\n[h](no.md)\n```\n");
  write_file(scratch / "bad.md", "[a](no.md)\n[b](other.md#two) [c](#there)\n[d](other.md#in-code)\n");

  const Findings good = check_links(scratch.path(), "good.md");
  EXPECT_THAT(good.problems, IsEmpty());
  EXPECT_EQ(good.links, 5);
  EXPECT_THAT(check_links(scratch.path(), "bad.md").problems,
              ElementsAre("bad.md links to no.md, and there is no such file",
                          "bad.md links to other.md#two, and there is no such heading",
                          "bad.md links to #there, and there is no such heading",
                          "bad.md links to other.md#in-code, and there is no such heading"));
}

}  // namespace
}  // namespace faultline::testing
