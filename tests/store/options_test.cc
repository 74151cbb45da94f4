// Every option of a job, from its field table, on every way into the database and through every end.

#include <set>

#include <gmock/gmock.h>

#include "base/fields.h"
#include "fixture.h"
#include "store/columns.h"
#include "support/every_option.h"

namespace faultline::testing {
namespace {

class OptionsTest : public StoreTest {
 protected:
  OptionsTest() { must(store_.set_queue("every_option", {})); }

  /// Without what keeps it from running: it is claimed at once, and tried again after a lost lease.
  NewJob due_job() {
    NewJob job = job_with_every_option();
    job.run_at = DatabaseTime{std::chrono::seconds{1'000'000'000}};
    return job;
  }
  JobId add(const NewJob& job) { return must(store_.enqueue(job)).job; }

  std::string quoted(std::string_view text) {
    return must(sql_.exec({"", "SELECT quote_literal($1::text)"}, pg::Params{}.add(text), soon()))
        .get<std::string>(0, 0);
  }

  // An argument of faultline.enqueue.
  std::string argument(const std::string& text) { return quoted(text); }
  std::string argument(int number) { return std::to_string(number); }
  std::string argument(std::chrono::milliseconds duration) {
    return quoted(std::to_string(duration.count()) + " ms");
  }
  std::string argument(DatabaseTime time) { return quoted(to_string(time)); }
  std::string argument(Delivery delivery) { return quoted(to_string(delivery)); }
  std::string argument(const std::vector<std::string>& texts) {
    std::string list;
    for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + quoted(text);
    return "ARRAY[" + list + "]";
  }
  template <class T>
  std::string argument(const std::optional<T>& value) {
    return value ? argument(*value) : "NULL";
  }
  static std::string hex(std::string_view bytes) {
    std::string text = "'\\x";
    for (const char c : bytes) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      text += kDigits[static_cast<unsigned char>(c) >> 4U];
      text += kDigits[static_cast<unsigned char>(c) & 0xFU];
    }
    return text + "'::bytea";
  }
};

/// The name of a field's argument in SQL, where durations are intervals.
std::string argument_name(const FieldInfo& field) {
  std::string_view name = field.name;
  if (name.ends_with("_ms")) name.remove_suffix(3);
  return std::string{name};
}

std::set<std::string> columns_of(pg::Connection& sql, const std::string& table) {
  const auto rows = must(sql.exec({"",
                                   "SELECT column_name::text FROM information_schema.columns"
                                   " WHERE table_schema = 'faultline' AND table_name = $1"},
                                  pg::Params{}.add(table), soon()));
  std::set<std::string> names;
  for (int row = 0; row < rows.rows(); ++row) names.insert(rows.get<std::string>(row, 0));
  return names;
}

TEST_F(OptionsTest, a_job_keeps_every_option) {
  NewJob job = job_with_every_option();
  const JobId keyed = add(job);
  EXPECT_EQ(differences(job, this->job(keyed)), "");

  job.idempotency_key.reset();
  EXPECT_EQ(differences(job, this->job(add(job))), "");
}

TEST_F(OptionsTest, a_batch_that_goes_through_copy_keeps_every_option) {
  NewJob job = job_with_every_option();
  job.idempotency_key.reset();
  const std::vector<NewJob> batch(600, job);

  const auto added = must(store_.enqueue(batch));

  EXPECT_EQ(differences(job, this->job(added.front().job)), "");
  EXPECT_EQ(differences(job, this->job(added.back().job)), "");
}

TEST_F(OptionsTest, every_single_option_makes_a_job_more_than_plain) {
  // A batch sends few options until a job needs more: whichever option that is, it arrives.
  const NewJob every = job_with_every_option();
  for_each_field<NewJob>([&](const auto& field) {
    if (field.name == facts::kIdempotencyKey.name) return;
    NewJob job{.queue = "every_option", .kind = "k"};
    field.of(job) = field.of(every);
    if (field.form == Form::payload) job.encoding = every.encoding;
    std::vector<NewJob> batch(500, NewJob{.queue = "every_option", .kind = "plain"});
    batch.push_back(job);
    EXPECT_EQ(differences(job, this->job(must(store_.enqueue(batch)).back().job)), "") << field.name;
  });
}

TEST_F(OptionsTest, a_producer_in_sql_has_every_option) {
  const NewJob job = job_with_every_option();
  std::string arguments = "payload_bytes => " + hex(job.payload);
  for_each_field<NewJob>([&]<class T>(const Field<NewJob, T>& field) {
    // Which of the two payloads is given says the encoding.
    if constexpr (!std::same_as<T, Encoding>) {
      if (field.form != Form::payload)
        arguments += ", " + argument_name(field) + " => " + argument(field.of(job));
    }
  });

  const auto rows = must(sql_.exec({"", "SELECT faultline.enqueue(" + arguments + ")"}, {}, soon()));

  const JobId added{rows.get<Uuid>(0, 0)};
  EXPECT_EQ(differences(job, this->job(added)), "");
  const Submission again = must(store_.enqueue(job));
  EXPECT_EQ(again.status, Submission::Status::existing) << "its fingerprint is the same as the store's";
  EXPECT_EQ(again.job, added);
}

TEST_F(OptionsTest, the_sql_function_has_the_arguments_of_the_table_and_no_others) {
  std::vector<std::string> expected;
  for_each_field<NewJob>([&](const FieldInfo& field) {
    // SQL has an argument for a payload of bytes in its place.
    if (field.form != Form::encoding) expected.push_back(argument_name(field));
  });
  expected.emplace_back("payload_bytes");
  const auto rows = must(sql_.exec(
      {"", "SELECT proargnames FROM pg_proc WHERE oid = 'faultline.enqueue'::regproc"}, {}, soon()));
  EXPECT_EQ(rows.get<std::vector<std::string>>(0, 0), expected);
}

TEST_F(OptionsTest, the_tables_have_a_column_for_every_option) {
  for (const std::string table : {"jobs", "ledger"}) {
    const auto columns = columns_of(sql_, table);
    for_each_field<NewJob>([&](const FieldInfo& field) {
      // A delay is a moment from the start.
      if (field.name == facts::kDelay.name) return;
      EXPECT_TRUE(columns.contains(std::string{field.name})) << table << "." << field.name;
    });
  }
}

TEST_F(OptionsTest, sql_refuses_what_is_out_of_the_table_s_bounds_and_nothing_else) {
  const auto taken = [&](const FieldInfo& field, const std::string& value) {
    return sql_
        .exec({"", "SELECT faultline.enqueue('default', 'k', '1', " + argument_name(field) + " => " + value +
                       ")"},
              {}, soon())
        .has_value();
  };
  int checked = 0;
  for_each_field<NewJob>([&]<class T>(const Field<NewJob, T>& field) {
    const auto of = [&](std::int64_t value) {
      return field.name.ends_with("_ms") ? "interval '" + std::to_string(value) + " ms'"
                                         : std::to_string(value);
    };
    const bool number = std::same_as<T, int> || std::same_as<T, std::optional<int>> ||
                        std::same_as<T, std::optional<std::chrono::milliseconds>>;
    if (!number) return;
    ++checked;
    EXPECT_TRUE(taken(field, of(field.min))) << field.name;
    EXPECT_TRUE(taken(field, of(field.max))) << field.name;
    EXPECT_FALSE(taken(field, of(field.min - 1))) << field.name;
    EXPECT_FALSE(taken(field, of(field.max + 1))) << field.name;
  });
  EXPECT_GE(checked, 7);
}

TEST_F(OptionsTest, the_store_refuses_what_is_out_of_the_table_s_bounds_and_nothing_else) {
  for_each_field<NewJob>([&]<class T>(const Field<NewJob, T>& field) {
    const auto taken = [&](std::int64_t value) {
      NewJob job{.kind = "k"};
      if constexpr (std::same_as<T, int> || std::same_as<T, std::optional<int>>) {
        field.of(job) = static_cast<int>(value);
      } else if constexpr (std::same_as<T, std::optional<std::chrono::milliseconds>>) {
        field.of(job) = std::chrono::milliseconds{value};
      } else if constexpr (std::same_as<T, std::string> || std::same_as<T, std::optional<std::string>>) {
        field.of(job) = std::string(static_cast<std::size_t>(value), 'x');
      } else if constexpr (std::same_as<T, std::vector<std::string>>) {
        field.of(job) = std::vector<std::string>(static_cast<std::size_t>(value), "x");
      }
      if (job.queue != "default" && job.queue.size() <= 128 && !job.queue.empty())
        must(store_.set_queue(job.queue, {}));
      return store_.enqueue(job).has_value();
    };
    if (field.max == FieldInfo::kUnbounded) return;
    EXPECT_TRUE(taken(field.min)) << field.name;
    EXPECT_TRUE(taken(field.max)) << field.name;
    if (!std::same_as<T, std::vector<std::string>>) {
      EXPECT_FALSE(taken(field.min - 1)) << field.name;
    }
    EXPECT_FALSE(taken(field.max + 1)) << field.name;
  });
}

TEST_F(OptionsTest, a_claim_brings_what_a_worker_has_to_know) {
  const NewJob job = due_job();
  add(job);

  const ClaimedJob claimed = claim_one("A", "every_option");

  // What a worker gets has no field for the key and the backoff, which are the server's business.
  for_each_field<ClaimedJob>([&]<class T>(const Field<ClaimedJob, T>& field) {
    for_each_field<NewJob>([&]<class U>(const Field<NewJob, U>& asked) {
      if constexpr (requires { field.of(claimed) == asked.of(job); }) {
        if (asked.name == field.name) {
          EXPECT_TRUE(field.of(claimed) == asked.of(job)) << field.name;
        }
      }
    });
  });
}

TEST_F(OptionsTest, however_a_job_ends_the_ledger_keeps_every_option) {
  NewJob job = due_job();
  int ends = 0;
  const auto expect_kept = [&](const char* how, const JobId& id) {
    ++ends;
    NewJob expected = job;
    if (std::string_view{how} == "purged") {
      expected.payload = "null";
      expected.encoding = Encoding::json;
    } else {
      EXPECT_TRUE(this->job(id).finished_at.has_value()) << how;
    }
    // A purged job was dead, and so had no moment any more.
    expected.run_at.reset();
    EXPECT_EQ(differences(expected, this->job(id)), "") << how;
  };
  const auto next = [&](const char* key) {
    job.idempotency_key = key;
    return add(job);
  };
  const auto claim = [&] { return claim_one("A", "every_option").lease; };

  const JobId succeeded = next("succeeded");
  EXPECT_TRUE(complete(claim()).committed());
  expect_kept("succeeded", succeeded);

  const JobId cancelled = next("cancelled while it waited");
  EXPECT_EQ(cancel(cancelled), CancelStatus::cancelled);
  expect_kept("cancelled while it waited", cancelled);

  const JobId wound_up = next("cancelled by its worker");
  const Lease lease = claim();
  EXPECT_EQ(cancel(wound_up), CancelStatus::requested);
  EXPECT_TRUE(settle(lease, Outcome::cancel("as asked")).committed());
  expect_kept("cancelled by its worker", wound_up);

  const JobId expired = next("cancelled by the watchdog");
  static_cast<void>(claim());
  EXPECT_EQ(cancel(expired), CancelStatus::requested);
  advance(*job.lease_ttl + std::chrono::seconds{1});
  EXPECT_EQ(sweep().size(), 1U);
  expect_kept("cancelled by the watchdog", expired);

  const JobId purged = next("purged");
  EXPECT_TRUE(settle(claim(), Outcome::bury("no")).committed());
  EXPECT_EQ(must(store_.purge_dead({&purged, 1}, "operator")).front(), PurgeStatus::purged);
  expect_kept("purged", purged);

  job.idempotency_key = "succeeded";
  EXPECT_EQ(requeue(succeeded), RequeueStatus::requeued);
  NewJob again = job;
  again.run_at.reset();
  EXPECT_EQ(differences(again, this->job(succeeded)), "") << "requeued";
  EXPECT_EQ(ends, 5);
}

}  // namespace
}  // namespace faultline::testing
