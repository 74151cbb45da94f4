// What the field tables make of the public structs.

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "codec/encode.h"
#include "codec/read_object.h"
#include "codec/schema.h"
#include "support/filled.h"

namespace faultline::codec {
namespace {

using testing::filled;
using Tree = nlohmann::json;

template <class Struct>
Tree as_tree(const Struct& value) {
  return Tree::parse(to_json(value));
}

/// Why text is no Struct; empty: it is one, and the same as `value`.
template <class Struct>
std::string there_and_back(const Struct& value) {
  const std::string text = to_json(value);
  Struct back;
  Refusal refusal;
  if (!read(Json{text}, back, refusal)) return refusal.message();
  std::string other;
  for_each_field<Struct>([&](const auto& field) {
    if (!(field.of(back) == field.of(value))) other.append(field.name).append(" is another\n");
  });
  return other;
}

template <class Struct>
std::string refusal_of(const std::string& text) {
  Struct into;
  Refusal refusal;
  return read(Json{text}, into, refusal) ? "" : refusal.message();
}

TEST(CodecTest, what_is_written_is_read_as_it_was) {
  EXPECT_EQ(there_and_back(filled<NewJob>()), "");
  EXPECT_EQ(there_and_back(NewJob{.kind = "k"}), "");
  EXPECT_EQ(there_and_back(filled<Lease>()), "");
  EXPECT_EQ(there_and_back(filled<QueueSettings>()), "");
  EXPECT_EQ(there_and_back(QueueSettings{}), "");
}

TEST(CodecTest, every_member_has_its_name_once) {
  const Tree job = as_tree(filled<Job>());
  // The payload is bytes, so its name says so, and there is no word for the encoding; the result is not JSON.
  EXPECT_EQ(job.size(), kFieldCount<Job> - 1);
  EXPECT_TRUE(job.contains("payload_base64"));
  EXPECT_TRUE(job.contains("result_base64"));
  EXPECT_EQ(job.at("lease_ttl_ms"), 1'334);
  EXPECT_EQ(job.at("run_at"), "2031-01-01T00:00:00.123456Z");
  EXPECT_EQ(job.at("tags").size(), 2U);
}

TEST(CodecTest, what_is_not_set_is_left_out_and_infinity_is_null) {
  const Tree job = as_tree(Job{.run_at = DatabaseTime::max(), .payload = "[1]"});
  EXPECT_TRUE(job.at("run_at").is_null());
  EXPECT_EQ(job.at("payload"), Tree::parse("[1]"));
  EXPECT_FALSE(job.contains("worker"));
  EXPECT_FALSE(job.contains("traceparent"));
}

TEST(CodecTest, refuses_what_is_missing_unknown_doubled_or_contradictory) {
  EXPECT_EQ(refusal_of<NewJob>("{}"), "kind: it is missing");
  EXPECT_EQ(refusal_of<NewJob>(R"({"kind":"k","prioritty":1})"),
            R"(there is no field "prioritty"; did you mean "priority"?)");
  EXPECT_EQ(refusal_of<NewJob>(R"({"kind":"k","kind":"k"})"), "kind: it is given twice");
  EXPECT_EQ(refusal_of<NewJob>(R"({"kind":"k","payload_base64":"","payload":1})"),
            "both payload and payload_base64 are given; give one of them");
  EXPECT_EQ(refusal_of<NewJob>(R"({"kind":"k","delivery":"twice"})"),
            "delivery: one of at_least_once, at_most_once, hold is expected");
  EXPECT_EQ(refusal_of<NewJob>(R"({"kind":"k","encoding":"json"})").substr(0, 28),
            R"(there is no field "encoding")");
}

TEST(CodecTest, null_takes_a_cap_away_and_is_otherwise_nothing) {
  QueueSettings settings;
  Refusal refusal;
  ASSERT_TRUE(read(Json{R"({"running_max":null,"attempts_max":null})"}, settings, refusal))
      << refusal.message();
  EXPECT_EQ(settings.running_max, -1);
  EXPECT_EQ(settings.attempts_max, std::nullopt);
}

TEST(CodecTest, schemas_have_every_member_with_a_description) {
  std::map<std::string, Tree> schemas;
  for (const auto& [name, schema] : struct_schemas()) schemas.emplace(name, Tree::parse(schema));
  const auto expect_documented = [&](const std::string& name, const Tree& value) {
    const Tree& schema = schemas.at(name);
    for (const auto& [member, content] : value.items())
      EXPECT_TRUE(schema.at("properties").contains(member)) << name << "." << member;
    for (const auto& [member, property] : schema.at("properties").items())
      EXPECT_FALSE(property.value("description", "").empty()) << name << "." << member;
    for (const Tree& required : schema.at("required"))
      EXPECT_TRUE(value.contains(required.get<std::string>())) << name << "." << required;
  };
  expect_documented("NewJob", as_tree(filled<NewJob>()));
  expect_documented("Job", as_tree(filled<Job>()));
  expect_documented("Job", as_tree(Job{.payload = "null"}));
  expect_documented("JobSummary", as_tree(filled<JobSummary>()));
  expect_documented("ClaimedJob", as_tree(filled<ClaimedJob>()));
  expect_documented("Attempt", as_tree(filled<Attempt>()));
  expect_documented("StaleWrite", as_tree(filled<StaleWrite>()));
  expect_documented("EffectRecord", as_tree(filled<EffectRecord>()));
  expect_documented("Stale", as_tree(filled<Stale>()));
  expect_documented("Lease", as_tree(filled<Lease>()));
  expect_documented("QueueSettings", as_tree(filled<QueueSettings>()));
  JsonWriter queue;
  write(queue, filled<Queue>(), filled<QueueCounts>());
  expect_documented("Queue", Tree::parse(queue.take()));

  const Tree& priority = schemas.at("NewJob").at("properties").at("priority");
  EXPECT_EQ(priority.at("minimum"), 0);
  EXPECT_EQ(priority.at("maximum"), 9);
  EXPECT_EQ(priority.at("default"), 5);
}

}  // namespace
}  // namespace faultline::codec
