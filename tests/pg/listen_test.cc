#include <gtest/gtest.h>

#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

class ListenTest : public ::testing::Test {
 protected:
  void notify(std::string_view channel, std::string_view payload) {
    must(sender_.exec({"notify", "SELECT pg_notify($1, $2)"}, Params{}.add(channel).add(payload), soon()));
  }

  TestDatabase database_{Template::empty};
  Connection sender_ = database_.connect();
  Connection listener_ = database_.connect();
};

TEST_F(ListenTest, brings_what_was_sent_on_a_channel_whatever_its_name) {
  const std::string channel = "we\"ird; Channel";
  must(listener_.listen(channel, soon()));
  notify("another", "no");
  notify(channel, "payload");

  const auto notifications = must(listener_.wait_for_notifications(soon()));

  ASSERT_EQ(notifications.size(), 1U);
  EXPECT_EQ(notifications[0].channel, channel);
  EXPECT_EQ(notifications[0].payload, "payload");
  EXPECT_EQ(notifications[0].backend_pid, sender_.backend_pid());
}

TEST_F(ListenTest, brings_what_came_while_a_statement_ran) {
  must(listener_.listen("c", soon()));
  notify("c", "early");
  must(listener_.exec({"", "SELECT 1"}, {}, soon()));
  EXPECT_EQ(must(listener_.wait_for_notifications(soon())).size(), 1U);
}

TEST_F(ListenTest, gives_none_at_the_deadline) {
  must(listener_.listen("c", soon()));
  const auto none = listener_.wait_for_notifications(Deadline::clock::now() + std::chrono::milliseconds{10});
  EXPECT_TRUE(must(none).empty());
  EXPECT_TRUE(listener_.usable());
}

TEST_F(ListenTest, says_that_the_connection_was_lost) {
  must(listener_.listen("c", soon()));
  must(sender_.exec({"", "SELECT pg_terminate_backend($1)"}, Params{}.add(listener_.backend_pid()), soon()));
  EXPECT_EQ(listener_.wait_for_notifications(soon()).error().code, Errc::connection_lost);
}

}  // namespace
}  // namespace faultline::pg
