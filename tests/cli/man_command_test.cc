// Manual pages, judged by mandoc.

#include "program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A page as a reader without a terminal sees it.
std::string rendered(const std::string& mdoc) {
  const ProcessResult result = run_process({.argv = {"mandoc", "-Tascii"}, .input = mdoc});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::string plain;
  for (const char c : result.out) {
    // Bold is a letter, a backspace and the letter again.
    if (c == '\b')
      plain.pop_back();
    else
      plain += c;
  }
  return plain;
}

std::string page(std::vector<std::string> command) {
  command.insert(command.begin(), "man");
  const ProcessResult result = run_faultline(std::move(command));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return rendered(result.out);
}

TEST(ManTest, every_command_has_a_page_that_mandoc_has_nothing_to_say_about) {
  const ScratchDir scratch;
  const ProcessResult written = run_faultline({"man", "--all", scratch / "man1"});
  ASSERT_EQ(written.exit_code, 0) << written.err;

  int pages = 0;
  for (const auto& entry : fs::directory_iterator{scratch / "man1"}) {
    ++pages;
    const ProcessResult lint = run_process({.argv = {"mandoc", "-Tlint", "-Wwarning", entry.path()}});
    EXPECT_EQ(lint.exit_code, 0) << lint.out << lint.err;
  }
  EXPECT_GT(pages, 15);
  for (const std::string name : {"faultline", "faultline-serve", "faultline-jobs", "faultline-drill"})
    EXPECT_TRUE(fs::exists(scratch / "man1" / (name + ".1"))) << name;
}

TEST(ManTest, the_page_of_the_program_names_its_commands_and_the_options_of_all) {
  EXPECT_THAT(page({}), AllOf(HasSubstr("faultline-serve(1)"), HasSubstr("--database URL"),
                              HasSubstr("DATABASE_URL"), HasSubstr("EXIT STATUS")));
}

TEST(ManTest, a_page_says_of_every_option_what_help_says) {
  EXPECT_THAT(page({"serve"}),
              AllOf(HasSubstr("--auth none|keys"), HasSubstr("Whether callers must have an API key."),
                    HasSubstr("FAULTLINE_AUTH")));
  const std::string keys = page({"keys"});
  EXPECT_THAT(keys, AllOf(HasSubstr("faultline keys create --name NAME --scope SCOPE"),
                          HasSubstr("faultline keys revoke ID")));
  EXPECT_THAT(page({"drill"}), Not(HasSubstr("lease-race-worker")));
}

TEST(ManTest, a_command_below_another_has_a_page_too) {
  EXPECT_THAT(page({"keys", "revoke"}), HasSubstr("FAULTLINE-KEYS-REVOKE(1)"));
}

TEST(ManTest, an_unknown_command_is_wrong_usage_and_a_place_that_cannot_be_written_is_named) {
  const ProcessResult unknown = run_faultline({"man", "keys", "lend"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("\"lend\""), HasSubstr("faultline keys --help")));

  const ScratchDir scratch;
  write_file(scratch / "file", "");
  const ProcessResult blocked = run_faultline({"man", "--all", scratch / "file"});
  EXPECT_EQ(blocked.exit_code, 1);
  EXPECT_THAT(blocked.err, HasSubstr((scratch / "file").string()));
}

}  // namespace
}  // namespace faultline::testing
