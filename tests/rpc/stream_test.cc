// StreamJobs: credit, fairness, what becomes of jobs whose stream breaks, drain, many idle streams.

#include <fstream>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "keys/keys.h"
#include "rpc/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;

class StreamTest : public RpcTest {
 protected:
  StreamTest() { serve(); }
};

TEST_F(StreamTest, brings_every_job_once_with_everything_that_a_worker_needs) {
  const auto ids = enqueue_many(30, {.payload = R"({"a":1})", .tags = {"t"}});
  Stream stream{stub(), "worker-1"};
  ASSERT_TRUE(stream.grant(30));
  std::vector<std::string> came;
  while (came.size() < 30) {
    const auto response = stream.read();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->sequence(), 1);
    for (const auto& assignment : response->jobs()) {
      came.push_back(assignment.lease().job_id());
      const ClaimedJob job = must(wire::from_proto(pb::JobAssignment{assignment}));
      EXPECT_EQ(job.payload, R"({"a":1})");
      EXPECT_EQ(job.attempt, 1);
      EXPECT_EQ(job.lease.token, FenceToken{1});
      EXPECT_EQ(job.lease.worker, "worker-1");
      EXPECT_EQ(job.lease_ttl, kTtl);
      EXPECT_EQ(must(store_.check({&job.lease, 1})).front().status, Verdict::Status::committed);
    }
  }
  std::vector<std::string> expected;
  for (const JobId& id : ids) expected.push_back(id.to_string());
  std::ranges::sort(came);
  std::ranges::sort(expected);
  EXPECT_EQ(came, expected);
}

TEST_F(RpcTest, a_stream_ends_with_its_key_and_gets_no_job_after_that) {
  const auto create = [&](std::optional<std::chrono::seconds> expires_in) {
    return must(keys::create(
        sql_, {.name = "worker", .scopes = {service::Scope::work}, .expires_in = expires_in}, soon()));
  };
  const keys::CreatedKey revoked = create(std::nullopt);
  const keys::CreatedKey expired = create(std::chrono::seconds{60});
  const keys::CreatedKey good = create(std::nullopt);
  authenticator_ = keys::Keyring::start({.database = database_.dsn(), .refresh = ms{5}});
  serve();
  ASSERT_TRUE(testing::eventually([&] { return authenticator_->authenticate(good.secret).has_value(); }));

  for (const keys::CreatedKey& key : {revoked, expired}) {
    // One that waits for jobs, one that has been granted nothing, and one whose key stays good.
    Stream waiting{stub(), "w", "default", key.secret};
    Stream idle{stub(), "w", "default", key.secret};
    Stream stays{stub(), "w", "default", good.secret};
    enqueue();
    waiting.grant(100);
    ASSERT_EQ(waiting.read_jobs(1).size(), 1U);
    idle.grant(0);
    if (key.key.id == revoked.key.id)
      must(keys::revoke(sql_, key.key.id, soon()));
    else
      advance(std::chrono::seconds{60});

    for (Stream* const stream : {&waiting, &idle}) {
      EXPECT_FALSE(stream->read().has_value());
      const grpc::Status status = stream->finish();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
      EXPECT_THAT(status.error_message(), HasSubstr("revoked"));
    }
    const JobId later = enqueue();
    stays.grant(1);
    const auto jobs = stays.read_jobs(1);
    ASSERT_EQ(jobs.size(), 1U);
    EXPECT_EQ(jobs.front().lease().job_id(), later.to_string());
    EXPECT_EQ(jobs.front().attempt(), 1) << "nobody else has had it";
  }
}

TEST_F(StreamTest, never_assigns_beyond_the_credit_that_was_granted) {
  enqueue_many(300);
  Stream stream{stub()};
  std::mt19937 random{42};
  std::int64_t credit = 0;
  std::set<std::string> seen;
  while (credit < 280) {
    credit += std::uniform_int_distribution{1, 40}(random);
    ASSERT_TRUE(stream.grant(credit));
    while (seen.size() < static_cast<std::size_t>(credit)) {
      const auto response = stream.read();
      ASSERT_TRUE(response.has_value());
      EXPECT_LE(response->sequence(), stream.sequence());
      for (const auto& job : response->jobs()) EXPECT_TRUE(seen.insert(job.lease().job_id()).second);
      ASSERT_LE(running(), credit);
    }
    ASSERT_EQ(running(), credit) << "nothing is claimed that the worker has no room for";
  }
  // Lowered credit takes nothing back, and what is granted again counts from the beginning.
  ASSERT_TRUE(stream.grant(1));
  ASSERT_TRUE(stream.grant(credit + 1));
  EXPECT_EQ(stream.read_jobs(1).size(), 1U);
  EXPECT_EQ(running(), credit + 1);
}

TEST_F(StreamTest, serves_every_stream_and_a_greedy_one_does_not_starve_the_others) {
  std::vector<std::unique_ptr<Stream>> modest;
  Stream greedy{stub(), "greedy"};
  ASSERT_TRUE(greedy.grant(100'000));
  for (int i = 0; i < 4; ++i) {
    modest.push_back(std::make_unique<Stream>(stub(), "modest-" + std::to_string(i)));
    ASSERT_TRUE(modest.back()->grant(10));
  }
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 5; }));
  // More and more jobs come, far fewer than the greedy one would take.
  std::thread producer{[&] {
    for (int round = 0; round < 20; ++round) enqueue_many(200);
  }};
  for (auto& stream : modest) EXPECT_EQ(stream->read_jobs(10).size(), 10U);
  producer.join();
}

TEST_F(StreamTest, splits_what_does_not_fit_into_a_message) {
  enqueue_many(12, {.payload = std::string(900'000, 'x'), .encoding = Encoding::bytes});
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(12));
  std::size_t count = 0;
  while (count < 12) {
    const auto response = stream.read();  // with the client's default limit of 4 MiB
    ASSERT_TRUE(response.has_value()) << stream.finish().error_message();
    count += static_cast<std::size_t>(response->jobs_size());
  }
}

/// So much that most of it cannot leave for a client that does not read: 8 messages, of which its connection
/// takes a few.
class BrokenStreamTest : public StreamTest {
 protected:
  static constexpr std::int64_t kJobs = 40;
  static constexpr std::int64_t kUnsentAtLeast = 20;

  BrokenStreamTest() {
    enqueue_many(kJobs, {.payload = std::string(200'000, 'x'), .encoding = Encoding::bytes});
  }

  /// A stream that has been given all jobs, and reads no more than the first message.
  std::unique_ptr<Stream> deaf_stream(pb::Faultline::Stub& stub) {
    auto deaf = std::make_unique<Stream>(stub, "deaf");
    deaf->grant(kJobs);
    EXPECT_TRUE(deaf->read().has_value());
    EXPECT_EQ(running(), kJobs);
    return deaf;
  }
  /// The test's clock stands still, so no lease runs out: what is not running any more was released.
  bool unsent_jobs_come_back() {
    return eventually([&] { return running() <= kJobs - kUnsentAtLeast; });
  }
};

TEST_F(BrokenStreamTest, a_job_whose_stream_broke_before_it_was_sent_is_released_at_once_and_not_counted) {
  EXPECT_EQ(deaf_stream(stub())->cancel().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(unsent_jobs_come_back());
  Stream other{stub(), "other"};
  ASSERT_TRUE(other.grant(kUnsentAtLeast));
  const auto jobs = other.read_jobs(kUnsentAtLeast);
  ASSERT_EQ(jobs.size(), std::size_t{kUnsentAtLeast});
  for (const auto& job : jobs) {
    EXPECT_EQ(job.attempt(), 1);
    EXPECT_EQ(job.lease().token(), 2);
    EXPECT_EQ(job.lease().worker(), "other");
  }
  const auto attempts = history(must(wire::job_id(jobs.front().lease().job_id()))).attempts;
  ASSERT_EQ(attempts.size(), 1U);
  EXPECT_EQ(attempts.front().outcome, "released");
  EXPECT_EQ(attempts.front().worker, "deaf");
  EXPECT_TRUE(eventually([&] { return server_->counters().streams == 1; }));
}

TEST_F(BrokenStreamTest, jobs_are_released_too_when_the_connection_is_gone) {
  {
    const auto own_stub = pb::Faultline::NewStub(channel());
    static_cast<void>(deaf_stream(*own_stub));
  }
  EXPECT_TRUE(unsent_jobs_come_back());
  EXPECT_TRUE(eventually([&] { return server_->counters().streams == 0; }));
}

TEST_F(BrokenStreamTest, jobs_are_released_too_when_the_client_breaks_the_rules) {
  const auto deaf = deaf_stream(stub());
  ASSERT_TRUE(deaf->grant(-1));
  EXPECT_TRUE(unsent_jobs_come_back());
}

TEST_F(BrokenStreamTest, jobs_are_released_too_when_the_server_is_destroyed) {
  const auto deaf = deaf_stream(stub());
  server_.reset();
  EXPECT_TRUE(unsent_jobs_come_back());
}

/// A write that fails may have arrived all the same.
class CutWriteTest : public StreamTest, public ::testing::WithParamInterface<Delivery> {
 protected:
  /// Each fills a message of its own, which does not fit into the window of a client that does not read.
  NewJob large_job() {
    return {.payload = std::string(900'000, 'x'), .encoding = Encoding::bytes, .delivery = GetParam()};
  }
};

TEST_P(CutWriteTest, a_job_whose_write_was_cut_is_given_to_others_only_if_it_may_run_twice) {
  enqueue_many(3, large_job());
  Stream cut{stub(), "cut"};
  ASSERT_TRUE(cut.grant(3));
  cut.wait_until_it_begins();  // the first job is being written, and the others wait

  EXPECT_EQ(cut.cancel().error_code(), grpc::StatusCode::CANCELLED);

  ASSERT_TRUE(eventually([&] { return server_->counters().streams == 0; }));
  service_->stop();  // which writes down what was released
  EXPECT_EQ(running(), may_run_twice(GetParam()) ? 0 : 1);
  advance(kTtl + ms{1});
  sweep();
  EXPECT_EQ(counts().dead, GetParam() == Delivery::at_most_once ? 1 : 0);
  EXPECT_EQ(counts().held, GetParam() == Delivery::hold ? 1 : 0);
  EXPECT_EQ(counts().available, may_run_twice(GetParam()) ? 3 : 2);
}

INSTANTIATE_TEST_SUITE_P(, CutWriteTest,
                         ::testing::Values(Delivery::at_least_once, Delivery::at_most_once, Delivery::hold),
                         [](const auto& info) { return std::string{to_string(info.param)}; });

TEST_F(StreamTest, what_a_client_does_not_read_is_bounded) {
  // Credit for everything, and a client that reads nothing: the server claims only so far ahead.
  enqueue_many(80, {.payload = std::string(500'000, 'x'), .encoding = Encoding::bytes});
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(1));
  ASSERT_EQ(stream.read_jobs(1).size(), 1U);  // now it is known how large they are
  ASSERT_TRUE(stream.grant(80));
  ASSERT_TRUE(eventually([&] { return running() > 1; }));
  const auto before = running();
  EXPECT_LT(before, 40);
  // Read, and the rest comes.
  EXPECT_EQ(stream.read_jobs(79).size(), 79U);
}

TEST_F(StreamTest, a_half_closed_stream_sends_what_it_has_and_ends) {
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(0));
  stream.half_close();
  EXPECT_FALSE(stream.read().has_value());
  EXPECT_TRUE(stream.finish().ok());
  EXPECT_TRUE(
      eventually([&] { return server_->counters().streams == 0 && service_->counters().consumers == 0; }));
}

TEST_F(StreamTest, heartbeats_keep_a_lease_although_its_stream_is_gone) {
  const JobId id = enqueue();
  const pb::JobAssignment job = take_one("w");
  ASSERT_TRUE(eventually([&] { return server_->counters().streams == 0; }));
  pb::HeartbeatRequest beat;
  *beat.add_leases() = job.lease();
  for (int i = 0; i < 3; ++i) {
    advance(kTtl - ms{1'000});
    EXPECT_TRUE(sweep().empty());
    EXPECT_EQ(must_call(&pb::Faultline::Stub::Heartbeat, beat).beats(0).status(), pb::Beat::RENEWED);
  }
  EXPECT_EQ(must_call(&pb::Faultline::Stub::ReportResult, report(job)).verdicts(0).status(),
            pb::Verdict::COMMITTED);
  EXPECT_EQ(this->job(id).state, JobState::succeeded);
}

TEST_F(StreamTest, a_stream_without_heartbeats_does_not_keep_a_lease) {
  enqueue();
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(1));
  ASSERT_EQ(stream.read_jobs(1).size(), 1U);
  advance(kTtl + ms{1});
  EXPECT_EQ(sweep().size(), 1U);
}

TEST_F(StreamTest, bad_messages_end_it_with_what_was_wrong) {
  {
    Stream stream{stub(), "w", ""};
    stream.grant(1);
    EXPECT_FALSE(stream.read().has_value());
    const grpc::Status status = stream.finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("queue"));
    EXPECT_EQ(wire::failure_of(status.error_details()).value().code(), "malformed");
  }
  {
    Stream stream{stub()};
    stream.grant(-1);
    EXPECT_FALSE(stream.read().has_value());
    EXPECT_EQ(stream.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    Stream stream{stub()};
    stream.grant(1);
    stream.grant(-1);
    EXPECT_FALSE(stream.read().has_value());
    EXPECT_EQ(stream.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    Stream stream{stub(), "w", "no_such_queue"};
    stream.grant(1);
    EXPECT_FALSE(stream.read().has_value());
    EXPECT_EQ(stream.finish().error_code(), grpc::StatusCode::NOT_FOUND);
  }
  EXPECT_TRUE(
      eventually([&] { return server_->counters().streams == 0 && service_->counters().consumers == 0; }));
}

TEST_F(StreamTest, a_draining_service_tells_streams_to_go_elsewhere) {
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(5));
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 1; }));
  service_->drain();
  const auto last = stream.read();
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->going_away());
  EXPECT_FALSE(stream.read().has_value());
  EXPECT_TRUE(stream.finish().ok());
  Stream late{stub()};
  late.grant(1);
  EXPECT_FALSE(late.read().has_value());
  EXPECT_EQ(late.finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StreamTest, a_draining_server_ends_streams_and_lets_calls_finish) {
  enqueue();
  Stream stream{stub()};
  ASSERT_TRUE(stream.grant(5));
  ASSERT_EQ(stream.read_jobs(1).size(), 1U);
  Stream idle{stub()};  // has not said anything yet
  ASSERT_TRUE(eventually([&] { return server_->counters().streams == 2; }));
  server_->drain(soon());
  const auto last = stream.read();
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->going_away());
  EXPECT_TRUE(stream.finish().ok());
  EXPECT_TRUE(idle.read().value().going_away());
  EXPECT_TRUE(idle.finish().ok());
  EXPECT_EQ(server_->counters().streams, 0U);
  pb::ListQueuesResponse response;
  EXPECT_EQ(call(&pb::Faultline::Stub::ListQueues, pb::ListQueuesRequest{}, response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcTest, refuses_streams_over_the_limit) {
  serve({.streams_max = 2});
  Stream first{stub()};
  Stream second{stub()};
  ASSERT_TRUE(first.grant(0) && second.grant(0));
  ASSERT_TRUE(eventually([&] { return server_->counters().streams == 2; }));
  {
    Stream third{stub()};
    EXPECT_FALSE(third.read().has_value());
    const grpc::Status status = third.finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_GT(wire::failure_of(status.error_details()).value().retry_after_ms(), 0);
  }
  static_cast<void>(first.cancel());
  ASSERT_TRUE(eventually([&] { return server_->counters().streams == 1; }));
  enqueue();
  Stream again{stub()};
  ASSERT_TRUE(again.grant(1));
  EXPECT_EQ(again.read_jobs(1).size(), 1U);
}

/// A stream that waits, without a thread.
class IdleStream : public grpc::ClientBidiReactor<pb::StreamJobsRequest, pb::StreamJobsResponse> {
 public:
  explicit IdleStream(pb::Faultline::Stub& stub) {
    request_.set_queue("default");
    request_.set_worker("idle");
    request_.set_credit(10);
    stub.async()->StreamJobs(&context_, this);
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&response_);
  }
  void OnDone(const grpc::Status&) override { done_ = true; }
  void cancel() { context_.TryCancel(); }
  [[nodiscard]] bool done() const { return done_; }

 private:
  grpc::ClientContext context_;
  pb::StreamJobsRequest request_;
  pb::StreamJobsResponse response_;
  std::atomic<bool> done_ = false;
};

std::size_t resident_mib(pid_t pid) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string word; status >> word;) {
    if (std::size_t kib = 0; word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  throw std::runtime_error("there is no process " + std::to_string(pid));
}

TEST_F(RpcTest, two_thousand_idle_streams_fit_into_300_mib) {
  ChildProcess child{{.argv = {FAULTLINE_RPC_CHILD, database_.dsn()}}};
  ASSERT_TRUE(eventually([&] { return child.out().ends_with('\n') || !child.running(); }));
  ASSERT_TRUE(child.running()) << child.err();
  const std::string address = "127.0.0.1:" + std::string{child.out().substr(0, child.out().find('\n'))};

  std::vector<std::unique_ptr<pb::Faultline::Stub>> stubs;
  for (int i = 0; i < 4; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(pb::Faultline::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  const std::size_t before = resident_mib(child.pid());
  std::vector<std::unique_ptr<IdleStream>> streams;
  for (std::size_t i = 0; i < 2'000; ++i) streams.push_back(std::make_unique<IdleStream>(*stubs[i % 4]));
  // The child says how many consumers its service has, whenever that changes.
  EXPECT_TRUE(eventually([&] { return child.out().contains("consumers 2000\n"); })) << child.out();
  const std::size_t after = resident_mib(child.pid());
  RecordProperty("resident_mib_before", static_cast<int>(before));
  RecordProperty("resident_mib_with_2000_streams", static_cast<int>(after));
  std::cout << "resident: " << before << " MiB, with 2,000 streams " << after << " MiB\n";
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(after, 300U);
#endif
  // They are alive: a job reaches one of them.
  enqueue();
  EXPECT_TRUE(eventually([&] { return running() == 1; }));
  for (auto& stream : streams) stream->cancel();
  for (auto& stream : streams) EXPECT_TRUE(eventually([&] { return stream->done(); }));
}

}  // namespace
}  // namespace faultline::testing
