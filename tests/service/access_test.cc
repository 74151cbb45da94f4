// Who may do what: every operation with every scope, and what a key that is bound to queues sees.

#include <set>

#include <gmock/gmock.h>

#include "service/fixture.h"

namespace faultline::testing {
namespace {

using service::Operation;
using service::QueueOverview;
using service::Scope;

constexpr std::array kScopes{Scope::produce, Scope::work, Scope::read, Scope::admin};

struct Cell {
  Operation operation;
  Scope needs;
};
constexpr std::array kOperations{
    Cell{Operation::enqueue, Scope::produce},   Cell{Operation::claim, Scope::work},
    Cell{Operation::heartbeat, Scope::work},    Cell{Operation::settle, Scope::work},
    Cell{Operation::progress, Scope::work},     Cell{Operation::check, Scope::work},
    Cell{Operation::resolve, Scope::work},      Cell{Operation::effects, Scope::work},
    Cell{Operation::get_job, Scope::read},      Cell{Operation::list_jobs, Scope::read},
    Cell{Operation::list_queues, Scope::read},  Cell{Operation::list_stale, Scope::read},
    Cell{Operation::watch_events, Scope::read}, Cell{Operation::metrics, Scope::read},
    Cell{Operation::cancel, Scope::admin},      Cell{Operation::requeue, Scope::admin},
    Cell{Operation::purge, Scope::admin},       Cell{Operation::decide, Scope::admin},
    Cell{Operation::set_queue, Scope::admin},   Cell{Operation::delete_queue, Scope::admin}};

TEST(AccessTest, scopes_are_read_as_they_are_written) {
  for (const Scope scope : kScopes) EXPECT_EQ(service::parse_scope(to_string(scope)), scope);
  EXPECT_FALSE(service::parse_scope("root"));
  EXPECT_FALSE(service::parse_scope(""));
}

TEST(AccessTest, every_operation_needs_its_one_scope) {
  EXPECT_EQ(kOperations.size(), static_cast<std::size_t>(Operation::delete_queue) + 1);
  for (const Cell& cell : kOperations) {
    for (const Scope scope : kScopes) {
      const service::Principal who{.name = "key", .scopes = {scope}};
      const auto problem = service::check_access(who, cell.operation, "default");
      EXPECT_EQ(problem.has_value(), scope != cell.needs)
          << static_cast<int>(cell.operation) << " with " << to_string(scope);
      EXPECT_EQ(problem.value_or(service::Problem{.code = service::Code::forbidden}).code,
                service::Code::forbidden);
    }
    EXPECT_TRUE(service::check_access({.name = "none", .scopes = {}}, cell.operation));
    EXPECT_FALSE(service::check_access(service::Principal::anybody(), cell.operation, "any"));
  }
}

TEST(AccessTest, a_bound_key_is_good_for_its_queues_only) {
  service::Principal who = service::Principal::anybody();
  who.queues = {"a", "b"};
  for (const Cell& cell : kOperations) {
    // Metrics are about all queues together.
    EXPECT_EQ(service::check_access(who, cell.operation, "a").has_value(),
              cell.operation == Operation::metrics);
    EXPECT_EQ(service::check_access(who, cell.operation).has_value(), cell.operation == Operation::metrics);
    const auto problem = service::check_access(who, cell.operation, "c");
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->code, service::Code::forbidden);
  }
}

class ServiceAccessTest : public ServiceTest {
 protected:
  ServiceAccessTest() {
    must(store_.set_queue("mine", {}));
    must(store_.set_queue("theirs", {}));
    bound_.name = "bound";
    bound_.queues = {"mine"};
    begin();
  }

  /// The code that a verb of the service answers with; nothing if it was done.
  template <class T, class Call>
  std::optional<Code> code_of(const Call& call) {
    const auto answer = answer_of<T>(call);
    return answer ? std::nullopt : std::optional{answer.error().code};
  }

  std::optional<Code> try_verb(Operation operation, const Principal& who) {
    const Lease lease{.job = {}, .token = {1}, .lease_id = Uuid::random(), .worker = "w"};
    switch (operation) {
      case Operation::enqueue:
        return code_of<std::vector<Submission>>(
            [&](auto done) { service_->enqueue(who, {NewJob{.kind = "x"}}, std::move(done)); });
      case Operation::claim: {
        Basket basket;
        const auto consumer = service_->consume(who, "default", "w", basket.deliver());
        return consumer ? std::nullopt : std::optional{consumer.error().code};
      }
      case Operation::heartbeat:
        return code_of<std::vector<Beat>>(
            [&](auto done) { service_->heartbeat(who, {lease}, std::nullopt, std::move(done)); });
      case Operation::settle:
        return code_of<std::vector<Verdict>>([&](auto done) {
          service_->settle(who, {{.lease = lease, .outcome = Outcome::success()}}, std::move(done));
        });
      case Operation::progress:
        return code_of<std::vector<Verdict>>(
            [&](auto done) { service_->progress(who, {{.lease = lease}}, std::move(done)); });
      case Operation::check:
        return code_of<std::vector<Verdict>>(
            [&](auto done) { service_->check(who, {lease}, std::move(done)); });
      case Operation::resolve:
        return code_of<std::vector<std::optional<Outcome::Kind>>>(
            [&](auto done) { service_->resolve(who, {lease}, std::move(done)); });
      case Operation::effects:
        return effects_code(who, lease);
      case Operation::get_job:
        return code_of<JobHistory>([&](auto done) { service_->job(who, known_, std::move(done)); });
      case Operation::list_jobs:
        return code_of<service::Page>([&](auto done) { service_->list(who, {}, "", std::move(done)); });
      case Operation::list_queues:
        return code_of<std::vector<QueueOverview>>(
            [&](auto done) { service_->queues(who, std::move(done)); });
      case Operation::list_stale:
        return code_of<service::Service::StalePage>(
            [&](auto done) { service_->stale_writes(who, 10, "", std::move(done)); });
      case Operation::watch_events: {
        const auto watch = service_->watch(who, [](const auto&) {});
        return watch ? std::nullopt : std::optional{watch.error().code};
      }
      case Operation::metrics:
        return std::nullopt;  // a transport's own
      case Operation::cancel:
        return code_of<service::Changed<CancelStatus>>(
            [&](auto done) { service_->cancel(who, {.ids = {JobId{}}}, "", std::move(done)); });
      case Operation::requeue:
        return code_of<service::Changed<RequeueStatus>>(
            [&](auto done) { service_->requeue(who, {.ids = {JobId{}}}, std::move(done)); });
      case Operation::purge:
        return code_of<service::Changed<PurgeStatus>>(
            [&](auto done) { service_->purge(who, {.ids = {JobId{}}}, std::move(done)); });
      case Operation::set_queue:
        return code_of<QueueOverview>(
            [&](auto done) { service_->set_queue(who, "default", {}, false, std::move(done)); });
      case Operation::decide:
        return code_of<DecideStatus>([&](auto done) {
          service_->decide_effect(who, {.job = known_, .key = "k", .reason = "r"}, std::move(done));
        });
      case Operation::delete_queue:
        return code_of<QueueDeletion>(
            [&](auto done) { service_->delete_queue(who, "theirs", std::move(done)); });
    }
    return std::nullopt;
  }

  /// What all three verbs on effects answer alike.
  std::optional<Code> effects_code(const Principal& who, const Lease& lease) {
    const auto begun = code_of<std::vector<Effect>>(
        [&](auto done) { service_->begin_effects(who, {{.lease = lease, .key = "k"}}, std::move(done)); });
    const auto recorded = code_of<std::vector<Effect>>([&](auto done) {
      service_->record_effects(who, {{.lease = lease, .key = "k", .result = ""}}, std::move(done));
    });
    const auto forgotten = code_of<std::vector<Verdict>>(
        [&](auto done) { service_->forget_effects(who, {{.lease = lease, .key = "k"}}, std::move(done)); });
    EXPECT_EQ(begun, recorded);
    EXPECT_EQ(begun, forgotten);
    return begun;
  }

  Principal bound_ = Principal::anybody();
  JobId known_;
};

TEST_F(ServiceAccessTest, every_verb_asks_for_its_scope) {
  known_ = enqueue_one();
  for (const Cell& cell : kOperations) {
    if (cell.operation == Operation::metrics) continue;
    for (const Scope scope : kScopes) {
      const auto code = try_verb(cell.operation, {.name = "key", .scopes = {scope}});
      const std::optional<Code> expected =
          scope == cell.needs ? std::nullopt : std::optional{Code::forbidden};
      EXPECT_EQ(code, expected) << static_cast<int>(cell.operation) << " with " << to_string(scope);
    }
  }
}

TEST_F(ServiceAccessTest, a_bound_key_adds_to_its_own_queues_only) {
  EXPECT_TRUE(enqueue(bound_, {NewJob{.queue = "mine", .kind = "x"}}));
  const auto mixed =
      enqueue(bound_, {NewJob{.queue = "mine", .kind = "x"}, NewJob{.queue = "theirs", .kind = "x"}});
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, Code::forbidden);
  // Whether it exists is none of its business either.
  const auto nowhere = enqueue(bound_, {NewJob{.queue = "nowhere", .kind = "x"}});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::forbidden);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 1);
}

TEST_F(ServiceAccessTest, a_bound_key_consumes_and_sets_its_own_queues_only) {
  Basket basket;
  EXPECT_TRUE(service_->consume(bound_, "mine", "w", basket.deliver()));
  const auto consumer = service_->consume(bound_, "theirs", "w", basket.deliver());
  ASSERT_FALSE(consumer);
  EXPECT_EQ(consumer.error().code, Code::forbidden);
  EXPECT_EQ(code_of<QueueOverview>(
                [&](auto done) { service_->set_queue(bound_, "mine", {}, true, std::move(done)); }),
            std::nullopt);
  EXPECT_EQ(code_of<QueueOverview>(
                [&](auto done) { service_->set_queue(bound_, "theirs", {}, true, std::move(done)); }),
            Code::forbidden);
}

TEST_F(ServiceAccessTest, to_a_bound_key_jobs_of_other_queues_are_not_there) {
  const JobId mine = enqueue_one({.queue = "mine"});
  const JobId theirs = enqueue_one({.queue = "theirs"});

  EXPECT_TRUE(history(bound_, mine));
  const auto hidden = history(bound_, theirs);
  const auto missing = history(bound_, JobId{});
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().code, Code::not_found);
  EXPECT_EQ(hidden.error().code, missing.error().code);
  EXPECT_EQ(hidden.error().hint, missing.error().hint);

  const auto requeued = must(requeue(bound_, {.ids = {theirs, mine}}));
  EXPECT_EQ(requeued.items.at(0).second, RequeueStatus::not_found);
  EXPECT_EQ(requeued.items.at(1).second, RequeueStatus::live);
  const auto purged = must(purge(bound_, {.ids = {theirs, mine}}));
  EXPECT_EQ(purged.items.at(0).second, PurgeStatus::not_found);
  EXPECT_EQ(purged.items.at(1).second, PurgeStatus::not_dead);
  const auto cancelled = must(cancel(bound_, {.ids = {theirs, mine}}));
  EXPECT_EQ(cancelled.items.at(0), std::pair(theirs, CancelStatus::not_found));
  EXPECT_EQ(cancelled.items.at(1), std::pair(mine, CancelStatus::cancelled));
  EXPECT_EQ(state(theirs), JobState::available);
}

TEST_F(ServiceAccessTest, the_ledger_names_the_key_that_ended_an_attempt_and_who_acted) {
  Principal billing = Principal::anybody();
  billing.name = "billing";
  billing.id = "flk_0123456789ab";
  const auto settle_as = [&](const Principal& who, const Lease& lease, Outcome outcome) {
    return must(answer_of<std::vector<Verdict>>([&](auto done) {
             service_->settle(who, {{.lease = lease, .outcome = outcome}}, std::move(done));
           }))
        .at(0);
  };
  const JobId id = enqueue_one({.backoff_base = ms{0}});
  EXPECT_TRUE(settle_as(billing, claim_one().lease, Outcome::failure("no")).committed());
  EXPECT_TRUE(settle_as(who_, claim_one().lease, Outcome::bury("no")).committed());
  EXPECT_EQ(must(requeue(billing, {.ids = {id}})).changed, 1U);
  EXPECT_TRUE(settle_as(billing, claim_one().lease, Outcome::success("r")).committed());

  const auto attempts = must(history(id)).attempts;

  ASSERT_EQ(attempts.size(), 4U);
  EXPECT_EQ(attempts[0].written_by, "billing (flk_0123456789ab)");
  EXPECT_EQ(attempts[1].written_by, std::nullopt) << "nobody was asked for a key";
  EXPECT_EQ(attempts[2].worker, "billing (flk_0123456789ab)");
  EXPECT_EQ(attempts[3].written_by, "billing (flk_0123456789ab)");
}

TEST_F(ServiceAccessTest, a_bound_key_must_name_one_of_its_queues) {
  enqueue_one({.queue = "mine"});
  const JobId theirs = enqueue_one({.queue = "theirs"});

  const auto all = list(bound_, {});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::forbidden);
  EXPECT_THAT(all.error().hint, ::testing::HasSubstr("mine"));
  EXPECT_EQ(must(list(bound_, {.queue = "mine"})).jobs.size(), 1);
  EXPECT_FALSE(list(bound_, {.queue = "theirs"}));
  EXPECT_FALSE(cancel(bound_, {.filter = ListRequest{.kind = "test"}}));
  EXPECT_FALSE(cancel(bound_, {.filter = ListRequest{.queue = "theirs"}}));
  EXPECT_FALSE(requeue(bound_, {.filter = ListRequest{.queue = "theirs", .state = JobState::dead}}));
  EXPECT_EQ(must(cancel(bound_, {.filter = ListRequest{.queue = "mine"}})).changed, 1);
  EXPECT_EQ(state(theirs), JobState::available);
}

TEST_F(ServiceAccessTest, a_bound_key_sees_only_its_queues_and_their_evidence) {
  for (const std::string queue : {"mine", "theirs", "theirs", "theirs"}) {
    enqueue_one({.queue = queue});
    const Lease lease = claim_one(queue).lease;
    must(settle({{.lease = lease, .outcome = Outcome::success()}}));
    must(settle({{.lease = lease, .outcome = Outcome::failure("no")}}));
  }

  const auto queues = must(
      answer_of<std::vector<QueueOverview>>([&](auto done) { service_->queues(bound_, std::move(done)); }));
  ASSERT_EQ(queues.size(), 1);
  EXPECT_EQ(queues.at(0).queue.name, "mine");
  const auto page = must(answer_of<service::Service::StalePage>(
      [&](auto done) { service_->stale_writes(bound_, 1, "", std::move(done)); }));
  ASSERT_EQ(page.writes.size(), 1);
  EXPECT_EQ(page.writes.at(0).queue, "mine");
}

}  // namespace
}  // namespace faultline::testing
