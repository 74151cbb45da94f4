#include "base/events.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "faultline/event.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;

std::string read(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The table of docs/reference/events.md.
std::string reference_table() {
  std::string text =
      "| event | severity | about | its own fields | told when |\n| --- | --- | --- | --- | --- |\n";
  for (const EventInfo& event : all_events()) {
    std::string fields;
    std::istringstream words{std::string{event.fields}};
    for (std::string word; words >> word;) {
      const bool optional = word.ends_with('?');
      if (optional) word.pop_back();
      fields += (fields.empty() ? "`" : ", `") + word + (optional ? "`?" : "`");
    }
    text += "| `" + std::string{event.name} + "` | " + std::string{to_string(event.severity)} + " | " +
            std::string{event.about} + " | " + fields + " | " + std::string{event.when} + " |\n";
  }
  return text;
}

TEST(EventListTest, the_reference_is_as_the_list) {
  EXPECT_THAT(read(FAULTLINE_SOURCE_DIR "/docs/reference/events.md"), HasSubstr(reference_table()))
      << "put this table there:\n\n"
      << reference_table();
}

TEST(EventListTest, has_every_name_once) {
  std::set<std::string_view> names;
  for (const EventInfo& event : all_events()) {
    EXPECT_TRUE(names.insert(event.name).second) << event.name;
    EXPECT_EQ(find_event(event.name), &event);
    EXPECT_TRUE(event.about == "job" || event.about == "process") << event.name;
    EXPECT_TRUE(event.when.ends_with('.')) << event.name;
  }
  EXPECT_EQ(find_event("nothing_of_this_name"), nullptr);
}

TEST(EventListTest, has_every_name_that_the_source_tells_and_no_other) {
  // tell(severity, "name"), with a choice of two names perhaps; log({.name = "name"; Event event{.name =
  // "name".
  const std::string name = R"re("([a-z]+(?:_[a-z]+)+)")re";
  const std::regex told{
      R"re((?:tell\(\s*(?:[\w:]+,\s*)?(?:[\w.()>-]+ \? )?|(?:log_?\(|Event \w+)\{\.name = ))re" + name +
      "(?: : " + name + ")?"};
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{FAULTLINE_SOURCE_DIR "/src"}) {
    const auto& path = entry.path();
    // What watchers of the server see has its own list, and the program's commands tell their own words to
    // people.
    const bool is_command =
        path.string().contains("/src/cli/") && !path.string().contains("/src/cli/support/");
    if (path.extension() != ".cc" || path.filename() == "event_broadcaster.cc" || is_command) continue;
    const std::string text = read(path);
    for (std::sregex_iterator match{text.begin(), text.end(), told}, end; match != end; ++match) {
      for (const std::size_t group : {1U, 2U}) {
        if ((*match)[group].matched) found.insert((*match)[group].str());
      }
    }
  }
  std::set<std::string> listed;
  for (const EventInfo& event : all_events()) listed.emplace(event.name);
  EXPECT_EQ(found, listed);
}

TEST(EventLineTest, a_value_for_people_cannot_pass_for_another_field_nor_play_tricks_with_a_terminal) {
  const Event event{
      .name = "program_said",
      .worker = "w job=made-up",
      .queue = "plain",
      .fields = {{"line", "say \"hi\" \\ \n\u009b2J\u202e"}, {"nothing", ""}, {"word", "a-b_c"}}};

  EXPECT_THAT(to_text_line(event),
              ::testing::EndsWith("info program_said worker=\"w job=made-up\" queue=plain"
                                  " line=\"say \\\"hi\\\" \\\\ ??2J?\" nothing=\"\" word=a-b_c"));
  const std::string json = to_json_line(event);
  EXPECT_THAT(json, HasSubstr("\\u009b2J\\u202e"));
  EXPECT_EQ(nlohmann::json::parse(json).at("line"), event.fields.at(0).second);
}

TEST(EventLineTest, is_valid_json_whatever_a_program_wrote) {
  const Event event{
      .name = "program_said", .worker = "w\"1\"", .attempt = 2, .fields = {{"line", "caf\xe9 \x01\t\xff"}}};

  const auto line = nlohmann::json::parse(to_json_line(event));

  EXPECT_EQ(line.at("worker"), "w\"1\"");
  EXPECT_EQ(line.at("attempt"), 2);
  EXPECT_EQ(line.at("line"), "caf\uFFFD \x01\t\uFFFD");
}

}  // namespace
}  // namespace faultline::testing
