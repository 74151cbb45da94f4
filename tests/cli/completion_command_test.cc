// Completion scripts, asked by the shells that they are for.

#include <sstream>

#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using Words = std::vector<std::string>;

class CompletionTest : public ::testing::Test {
 protected:
  /// Writes the script for a shell, and says where.
  std::filesystem::path script(const std::string& shell, const std::string& name) {
    const ProcessResult made = run_faultline({"completion", shell});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    write_file(scratch_ / name, made.out);
    return scratch_ / name;
  }

  static Words lines_of(const ProcessResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Words lines;
    std::istringstream in{result.out};
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  /// What bash offers when Tab is pressed after these words, the last of which is the one under way.
  Words bash(const Words& words) {
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    return lines_of(run_process({.argv = {"bash", "--norc", "-c",
                                          ". '" + script("bash", "bash").string() + "'; COMP_WORDS=(" + list +
                                              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _faultline; printf "
                                              "'%s' \"${COMPREPLY[@]/%/$'\\n'}\""},
                                 .directory = scratch_.path()}));
  }

  /// What zsh offers when Tab is pressed at the end of this line.
  Words zsh(const std::string& line) {
    (void)script("zsh", "_faultline");
    return lines_of(run_process({.argv = {"zsh", "-f", CLI_TEST_DIR "/complete.zsh", scratch_.path(), line},
                                 .environment = {{"HOME", scratch_.path()}, {"TERM", "dumb"}},
                                 .directory = scratch_.path()}));
  }

  const ScratchDir scratch_;
};

TEST_F(CompletionTest, bash_offers_commands_and_the_commands_below_them) {
  EXPECT_THAT(bash({"faultline", ""}), IsSupersetOf({"serve", "keys", "jobs", "doctor", "drill"}));
  EXPECT_THAT(bash({"faultline", "conf"}), ElementsAre("config"));
  EXPECT_THAT(bash({"faultline", "keys", ""}), ElementsAre("create", "list", "revoke"));
  EXPECT_THAT(bash({"faultline", "--json", "--database", "keys", "pg", "st"}),
              ElementsAre("start", "stop", "status"));
}

TEST_F(CompletionTest, bash_offers_the_options_of_a_command_and_of_those_above_it) {
  EXPECT_THAT(bash({"faultline", "keys", "create", "--"}),
              IsSupersetOf({"--name", "--scope", "--json", "--help"}));
  EXPECT_THAT(bash({"faultline", "serve", "--http-b"}),
              ElementsAre("--http-body-max", "--http-body-timeout"));
  EXPECT_THAT(bash({"faultline", "keys", "list", "--"}), Not(Contains("--scope")));
}

TEST_F(CompletionTest, bash_offers_the_values_of_an_option_in_both_spellings) {
  EXPECT_THAT(bash({"faultline", "serve", "--auth", ""}), ElementsAre("none", "keys"));
  EXPECT_THAT(bash({"faultline", "serve", "--auth", "=", "k"}), ElementsAre("keys"));
  EXPECT_THAT(bash({"faultline", "serve", "--auth", "="}), ElementsAre("none", "keys"));
  EXPECT_THAT(bash({"faultline", "serve", "--database", ""}), IsEmpty());
  EXPECT_THAT(bash({"faultline", "completion", ""}), ElementsAre("bash", "zsh"));
}

TEST_F(CompletionTest, bash_offers_files_and_directories_where_they_are_wanted) {
  write_file(scratch_ / "some.toml", "");
  std::filesystem::create_directory(scratch_ / "some.d");

  EXPECT_THAT(bash({"faultline", "serve", "--config", "so"}), IsSupersetOf({"some.toml", "some.d"}));
  EXPECT_THAT(bash({"faultline", "--data-dir", "so"}), ElementsAre("some.d"));
}

TEST_F(CompletionTest, zsh_offers_commands_options_and_values) {
  EXPECT_THAT(zsh("faultline "), IsSupersetOf({"serve", "keys", "jobs", "doctor", "drill"}));
  EXPECT_THAT(zsh("faultline keys "), ElementsAre("create", "list", "revoke"));
  EXPECT_THAT(zsh("faultline --json pg st"), ElementsAre("start", "status", "stop"));
  EXPECT_THAT(zsh("faultline keys create --"), IsSupersetOf({"--name", "--scope", "--json"}));
  EXPECT_THAT(zsh("faultline serve --auth "), ElementsAre("keys", "none"));
  EXPECT_THAT(zsh("faultline completion z"), ElementsAre("zsh"));
}

TEST_F(CompletionTest, what_help_hides_is_not_offered) {
  for (const std::string shell : {"bash", "zsh"}) {
    const ProcessResult made = run_faultline({"completion", shell});
    EXPECT_THAT(made.out, Not(HasSubstr("lease-race-worker")));
    EXPECT_THAT(made.out, HasSubstr("lease-race"));
  }
}

TEST_F(CompletionTest, a_shell_without_a_script_is_wrong_usage) {
  EXPECT_EQ(run_faultline({"completion", "fish"}).exit_code, 2);
}

}  // namespace
}  // namespace faultline::testing
