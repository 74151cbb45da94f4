// The functions that answer live in the database, where a person or another release may have changed them.
// What they say must not end a process.

#include "store/fixture.h"

namespace faultline::testing {
namespace {

class UnexpectedAnswerTest : public StoreTest {
 protected:
  /// From now on the function does nothing and answers one row, or one value, that is NULL throughout.
  void make_void(const std::string& function) {
    script(
        "DO $make$ DECLARE f record; BEGIN"
        "  FOR f IN SELECT p.oid, p.proretset AS is_set, p.proargmodes IS NOT NULL AS has_columns FROM "
        "pg_proc p"
        "    WHERE p.pronamespace = 'faultline'::regnamespace AND p.proname = '" +
        function +
        "' LOOP"
        "    EXECUTE split_part(pg_get_functiondef(f.oid), 'AS $function$', 1) || 'AS $function$ BEGIN "
        "RETURN '"
        "      || CASE WHEN f.is_set THEN 'NEXT ' ELSE '' END || CASE WHEN f.has_columns THEN '' ELSE 'NULL' "
        "END"
        "      || '; END $function$';"
        "  END LOOP; END $make$");
  }

  template <class T>
  static void expect_told(const Expected<T>& answer, ErrorCode code) {
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, code) << answer.error().describe();
    EXPECT_NE(answer.error().message.find("unknown form"), std::string::npos) << answer.error().describe();
  }
};

TEST_F(UnexpectedAnswerTest, of_a_verb_is_an_unknown_outcome) {
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  const Settlement done{.lease = lease};
  const ProgressReport report{.lease = lease, .fraction = 0.5};
  const EffectKey key{.lease = lease, .key = "step"};
  const EffectResult result{.lease = lease, .key = "step", .result = "1"};
  for (const char* function : {"claim_jobs", "settle_jobs", "renew_leases", "report_progress",
                               "begin_effects", "record_effects", "forget_effects", "cancel_jobs",
                               "requeue_jobs", "purge_jobs", "enqueue_jobs", "expire_leases", "prune_jobs"}) {
    make_void(function);
  }
  const auto unknown = ErrorCode::outcome_unknown;
  {
    SCOPED_TRACE("claim");
    expect_told(store_.claim({.worker = "A"}), unknown);
  }
  {
    SCOPED_TRACE("settle");
    expect_told(store_.settle({&done, 1}), unknown);
  }
  {
    SCOPED_TRACE("exchange");
    expect_told(store_.exchange({&done, 1}, {.worker = "A"}), unknown);
  }
  {
    SCOPED_TRACE("heartbeat");
    expect_told(store_.heartbeat({&lease, 1}), unknown);
  }
  {
    SCOPED_TRACE("progress");
    expect_told(store_.progress({&report, 1}), unknown);
  }
  {
    SCOPED_TRACE("begin_effects");
    expect_told(store_.begin_effects({&key, 1}), unknown);
  }
  {
    SCOPED_TRACE("record_effects");
    expect_told(store_.record_effects({&result, 1}), unknown);
  }
  {
    SCOPED_TRACE("forget_effects");
    expect_told(store_.forget_effects({&key, 1}), unknown);
  }
  {
    SCOPED_TRACE("cancel");
    expect_told(store_.cancel({&id, 1}, "me", "", Uuid::random()), unknown);
  }
  {
    SCOPED_TRACE("requeue");
    expect_told(store_.requeue({&id, 1}, "me", Uuid::random()), unknown);
  }
  {
    SCOPED_TRACE("purge");
    expect_told(store_.purge_dead({&id, 1}, "me", Uuid::random()), unknown);
  }
  {
    SCOPED_TRACE("enqueue");
    const NewJob keyed{.kind = "k", .idempotency_key = "key"};
    expect_told(store_.enqueue({&keyed, 1}), unknown);
  }
  {
    SCOPED_TRACE("expire");
    expect_told(store_.expire_leases(10), unknown);
  }
  {
    SCOPED_TRACE("prune");
    expect_told(store_.prune(10), unknown);
  }
  // None of this was done, and the store goes on.
  EXPECT_EQ(job(id).state, JobState::running);
}

TEST_F(UnexpectedAnswerTest, of_a_reading_statement_is_an_error) {
  const JobId id = enqueue();
  script(
      "ALTER TABLE faultline.jobs DROP CONSTRAINT running_has_a_lease_and_nothing_else_has;"
      "ALTER TABLE faultline.jobs ALTER kind DROP NOT NULL;"
      "UPDATE faultline.jobs SET kind = NULL WHERE queue <> '';"
      "ALTER TABLE faultline.queues ALTER lease_ttl_ms DROP NOT NULL;"
      "UPDATE faultline.queues SET lease_ttl_ms = NULL");

  expect_told(store_.job(id), ErrorCode::internal);
  expect_told(store_.history(id), ErrorCode::internal);
  expect_told(store_.list({}), ErrorCode::internal);
  expect_told(store_.queues(), ErrorCode::internal);

  EXPECT_TRUE(store_.now().has_value());
}

}  // namespace
}  // namespace faultline::testing
