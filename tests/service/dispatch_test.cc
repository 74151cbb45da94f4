// Jobs are dealt out fairly, never beyond credit, and what reaches nobody is given back at once.

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "service/fixture.h"

namespace faultline::testing {
namespace {

class DispatchTest : public ServiceTest {
 protected:
  std::int64_t running() { return number("SELECT count(*) FROM faultline.jobs WHERE state = 'running'"); }
};

TEST_F(DispatchTest, a_consumer_gets_what_it_has_credit_for_and_no_more) {
  begin();
  enqueue_many(10);
  Basket basket;
  auto consumer = consume(basket);

  consumer->grant(3, 1);
  ASSERT_TRUE(basket.reaches(3));
  consumer->grant(5, 2);
  ASSERT_TRUE(basket.reaches(5));
  consumer->grant(4, 3);
  // Whatever is enqueued and whoever is woken now: there is no credit.
  Basket other;
  auto second = consume(other);
  second->grant(5, 1);
  ASSERT_TRUE(other.reaches(5));

  EXPECT_EQ(basket.count(), 5);
  EXPECT_EQ(running(), 10);
  EXPECT_EQ(basket.deliveries().front().sequence, 1);
  EXPECT_EQ(basket.deliveries().back().sequence, 2);
}

TEST_F(DispatchTest, consumers_take_turns) {
  service::ServiceOptions one_claim_at_a_time = options();
  one_claim_at_a_time.connections = 1;
  begin(one_claim_at_a_time);
  std::array<Basket, 3> baskets;
  std::vector<std::unique_ptr<service::Consumer>> consumers;
  must(store_.pause("default"));
  for (Basket& basket : baskets) {
    consumers.push_back(consume(basket));
    consumers.back()->grant(1'000, 1);
  }
  enqueue_many(300);
  must(store_.resume("default"));

  for (const Basket& basket : baskets) EXPECT_TRUE(basket.reaches(100));

  for (const Basket& basket : baskets) EXPECT_EQ(basket.count(), 100);
}

TEST_F(DispatchTest, many_consumers_with_small_credit_share_a_queue) {
  begin();
  constexpr std::size_t kConsumers = 50;
  std::vector<Basket> baskets(kConsumers);
  std::vector<std::unique_ptr<service::Consumer>> consumers;
  for (Basket& basket : baskets) {
    consumers.push_back(consume(basket));
    consumers.back()->grant(4, 1);
  }
  enqueue_many(kConsumers * 4 + 10);

  for (const Basket& basket : baskets) EXPECT_TRUE(basket.reaches(4));

  for (const Basket& basket : baskets) EXPECT_EQ(basket.count(), 4);
  EXPECT_EQ(running(), kConsumers * 4);
}

TEST_F(DispatchTest, never_beyond_credit_however_it_is_granted) {
  begin();
  enqueue_many(2'000);
  constexpr int kConsumers = 6;
  struct Customer {
    std::mutex mutex;
    std::int64_t highest = 0;  // the highest credit ever granted
    std::int64_t delivered = 0;
    bool beyond = false;
    bool overlapped = false;
    std::atomic<int> inside{0};
  };
  std::array<Customer, kConsumers> customers;
  std::vector<std::unique_ptr<service::Consumer>> consumers;
  for (Customer& customer : customers) {
    consumers.push_back(
        must(service_->consume(who_, "default", "w", [&customer](std::vector<ClaimedJob> jobs, std::int64_t) {
          if (customer.inside.fetch_add(1) != 0) customer.overlapped = true;
          {
            const std::lock_guard lock{customer.mutex};
            customer.delivered += static_cast<std::int64_t>(jobs.size());
            customer.beyond = customer.beyond || customer.delivered > customer.highest;
          }
          customer.inside.fetch_sub(1);
          return true;
        })));
  }

  std::minstd_rand random{20'260'401};
  for (std::int64_t round = 1; round <= 600; ++round) {
    const std::size_t i = random() % kConsumers;
    Customer& customer = customers[i];
    std::int64_t credit = 0;
    {
      const std::lock_guard lock{customer.mutex};
      credit = customer.delivered + static_cast<std::int64_t>(random() % 7) - 3;
      customer.highest = std::max(customer.highest, credit);
    }
    consumers[i]->grant(credit, round);
  }
  // Now everybody may have 100 in all, or what it has already.
  for (std::size_t i = 0; i < kConsumers; ++i) {
    {
      const std::lock_guard lock{customers[i].mutex};
      customers[i].highest = std::max<std::int64_t>(customers[i].highest, 300);
    }
    consumers[i]->grant(300, 1'000);
  }
  ASSERT_TRUE(eventually([&] { return running() == 300 * kConsumers; }));
  ASSERT_TRUE(eventually([&] {
    return std::ranges::all_of(customers, [](Customer& customer) {
      const std::lock_guard lock{customer.mutex};
      return customer.delivered == 300;
    });
  }));
  consumers.clear();

  for (const Customer& customer : customers) {
    EXPECT_FALSE(customer.beyond);
    EXPECT_FALSE(customer.overlapped);
  }
  EXPECT_EQ(counted("faultline_lease_acquisitions_total"), 300 * kConsumers);
}

TEST_F(DispatchTest, a_broken_consumer_gives_back_at_once_and_the_attempt_does_not_count) {
  begin();
  const JobId id = enqueue_one();
  std::atomic<int> refused{0};
  auto broken =
      must(service_->consume(who_, "default", "broken", [&](const std::vector<ClaimedJob>&, std::int64_t) {
        ++refused;
        return false;
      }));
  broken->grant(10, 1);
  ASSERT_TRUE(eventually([&] { return refused == 1; }));

  const ClaimedJob job = claim_one();

  EXPECT_EQ(job.lease.job, id);
  EXPECT_EQ(job.attempt, 1);
  EXPECT_GT(job.lease.token.value, 1);
  EXPECT_EQ(must(history(id)).attempts.at(0).outcome, "released");
  EXPECT_EQ(refused, 1);
}

TEST_F(DispatchTest, jobs_of_a_consumer_that_left_while_they_were_claimed_are_given_back) {
  begin();
  const JobId id = enqueue_one();
  // The claim waits for the queue's row until the consumer has left.
  must(store_.set_queue("default", {.running_max = 1}));
  script("BEGIN; SELECT 1 FROM faultline.queues WHERE name = 'default' FOR UPDATE");
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(1, 1);
  ASSERT_TRUE(eventually([&] {
    return number(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
               " AND wait_event_type = 'Lock' AND application_name = 'faultline server'") > 0;
  }));

  consumer.reset();
  script("COMMIT");

  ASSERT_TRUE(eventually([&] { return must(history(id)).attempts.size() == 1; }));
  EXPECT_EQ(must(history(id)).attempts.at(0).outcome, "released");
  EXPECT_EQ(basket.count(), 0);
  EXPECT_EQ(claim_one().attempt, 1);
}

TEST_F(DispatchTest, an_idle_consumer_is_woken_by_what_this_service_adds) {
  service::ServiceOptions sleepy = options();
  sleepy.listen = false;
  sleepy.poll_max = std::chrono::hours{1};
  begin(sleepy);
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(100, 1);
  for (std::size_t i = 1; i <= 20; ++i) {
    enqueue_one();
    ASSERT_TRUE(basket.reaches(i));
  }
}

TEST_F(DispatchTest, an_idle_consumer_is_woken_by_what_somebody_else_adds) {
  service::ServiceOptions sleepy = options();
  sleepy.poll_max = std::chrono::hours{1};
  begin(sleepy);
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(100, 1);
  ASSERT_TRUE(eventually([&] {
    return number(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
               " AND application_name = 'faultline server listen'") == 1;
  }));
  for (std::size_t i = 1; i <= 20; ++i) {
    enqueue_many(1);
    ASSERT_TRUE(basket.reaches(i));
  }
}

TEST_F(DispatchTest, without_announcements_jobs_are_found_by_looking) {
  service::ServiceOptions deaf = options();
  deaf.listen = false;
  deaf.poll_max = ms{20};
  begin(deaf);
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(100, 1);
  for (std::size_t i = 1; i <= 5; ++i) {
    enqueue_many(1);
    ASSERT_TRUE(basket.reaches(i));
  }
}

TEST_F(DispatchTest, whoever_comes_to_a_queue_that_was_empty_is_served_at_once) {
  service::ServiceOptions sleepy = options();
  sleepy.listen = false;
  sleepy.poll_max = std::chrono::hours{1};
  begin(sleepy);
  Basket first;
  auto idle = consume(first);
  idle->grant(1, 1);
  enqueue_many(1);  // by somebody else, and nobody says so

  // It makes the line look again, whoever's turn it is.
  Basket second;
  auto newcomer = consume(second);
  newcomer->grant(1, 1);

  EXPECT_TRUE(eventually([&] { return first.count() + second.count() == 1; }));
}

TEST_F(DispatchTest, a_paused_queue_gives_nothing_until_it_goes_on) {
  begin();
  must(store_.pause("default"));
  enqueue_many(3);
  Basket paused;
  auto consumer = consume(paused);
  consumer->grant(10, 1);
  must(store_.set_queue("other", {}));
  enqueue_one({.queue = "other"});
  claim_one("other");

  EXPECT_EQ(paused.count(), 0);
  must(store_.resume("default"));
  EXPECT_TRUE(paused.reaches(3));
}

TEST_F(DispatchTest, two_thousand_idle_consumers_are_served_in_turn) {
  begin();
  std::vector<Basket> baskets(2'000);
  std::vector<std::unique_ptr<service::Consumer>> consumers;
  for (Basket& basket : baskets) {
    consumers.push_back(consume(basket));
    consumers.back()->grant(1, 1);
  }
  EXPECT_EQ(service_->counters().consumers, 2'000);
  enqueue_many(2'000);

  EXPECT_TRUE(eventually([&] {
    return std::ranges::all_of(baskets, [](const Basket& basket) { return basket.count() == 1; });
  }));
  consumers.clear();
  EXPECT_EQ(service_->counters().consumers, 0);
}

TEST_F(DispatchTest, more_consumers_than_allowed_are_refused) {
  service::ServiceOptions few = options();
  few.consumers_max = 2;
  begin(few);
  Basket basket;
  auto first = consume(basket);
  auto second = consume(basket);
  const auto third = service_->consume(who_, "default", "w", basket.deliver());
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::overloaded);
  EXPECT_TRUE(third.error().retry_after);
  second.reset();
  EXPECT_TRUE(service_->consume(who_, "default", "w", basket.deliver()));
}

TEST_F(DispatchTest, when_it_drains_it_gives_out_nothing_more_and_still_answers) {
  begin();
  enqueue_many(1);
  const ClaimedJob in_hand = claim_one();
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(10, 1);

  service_->drain();

  EXPECT_FALSE(service_->ready());
  EXPECT_FALSE(service_->why_not_ready().empty());
  EXPECT_TRUE(eventually([&] { return basket.told_to_go(); }));
  EXPECT_FALSE(service_->consume(who_, "default", "w", basket.deliver()));
  consumer->grant(20, 2);
  enqueue_one();
  EXPECT_TRUE(must(settle({{.lease = in_hand.lease, .outcome = Outcome::success()}})).at(0).committed());
  consumer.reset();
  EXPECT_EQ(basket.count(), 0);
  EXPECT_EQ(running(), 0);
}

TEST_F(DispatchTest, when_it_has_stopped_nothing_is_delivered) {
  begin();
  enqueue_many(5'000);
  std::atomic<bool> stopped{false};
  std::atomic<bool> delivered_afterwards{false};
  std::atomic<std::int64_t> delivered{0};
  auto consumer =
      must(service_->consume(who_, "default", "w", [&](const std::vector<ClaimedJob>& jobs, std::int64_t) {
        if (stopped) delivered_afterwards = true;
        delivered += static_cast<std::int64_t>(jobs.size());
        return true;
      }));
  consumer->grant(5'000, 1);
  ASSERT_TRUE(eventually([&] { return delivered > 0; }));

  service_->stop();
  stopped = true;
  consumer.reset();

  EXPECT_FALSE(delivered_afterwards);
  // What was claimed and not delivered has been given back.
  EXPECT_EQ(running(), delivered);
}

}  // namespace
}  // namespace faultline::testing
