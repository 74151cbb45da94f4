#include <thread>

#include "fixture.h"

namespace faultline::testing {
namespace {

class HttpEvents : public HttpTest {
 protected:
  [[nodiscard]] RawClient watch(std::string_view target = "/v1/events") const {
    RawClient client = connect();
    client.send("GET " + std::string{target} + " HTTP/1.1\r\nHost: t\r\n\r\n");
    const auto head = client.read_reply();
    EXPECT_TRUE(head);
    EXPECT_EQ(head->status, 200);
    EXPECT_EQ(head->header("content-type"), "text/event-stream");
    return client;
  }
  /// The next event of that name.
  static std::string next(RawClient& client, const std::string& name) {
    for (;;) {
      const auto frame = client.read_until("\n\n");
      if (!frame) return "(the end)";
      if (frame->find("event: " + name + "\n") != std::string::npos) return *frame;
    }
  }
};

TEST_F(HttpEvents, what_happens_is_told_as_it_happens) {
  RawClient client = watch();
  const std::string id = add({{"kind", "k"}, {"payload", "canary-payload"}});
  const std::string frame = next(client, "job_enqueued");
  EXPECT_TRUE(frame.starts_with("id: ")) << frame;
  const std::size_t data = frame.find("\ndata: ");
  ASSERT_NE(data, std::string::npos) << frame;
  EXPECT_TRUE(Json::parse(frame.substr(data + 7)).is_object()) << frame;
  EXPECT_EQ(frame.find("canary-payload"), std::string::npos);
}

TEST_F(HttpEvents, a_queue_can_be_watched_alone) {
  make_queue("mine");
  make_queue("other");
  RawClient client = watch("/v1/events?queue=mine");
  static_cast<void>(add({{"kind", "k"}, {"queue", "other"}}));
  static_cast<void>(add({{"kind", "k"}, {"queue", "mine"}}));
  const std::string frame = next(client, "job_enqueued");
  EXPECT_NE(frame.find("mine"), std::string::npos) << frame;
  EXPECT_EQ(frame.find("other"), std::string::npos) << frame;
  EXPECT_EQ(get("/v1/events?queu=x").status, 422);
}

TEST_F(HttpEvents, a_reader_that_leaves_costs_nothing) {
  for (int i = 0; i < 20; ++i) {
    RawClient client = watch();
    static_cast<void>(add());
  }
  EXPECT_TRUE(eventually([&] { return server_->counters().connections == 0; }));
}

/// A service on which so much happens that no kernel's buffers can hold it for a reader that sleeps.
class Firehose : public service::Service {
 public:
  using Who = service::Principal;
  template <class T>
  using Done = service::Done<T>;

  [[nodiscard]] const service::ServiceOptions& options() const override { return options_; }
  void enqueue(const Who&, std::vector<NewJob>, Done<std::vector<Submission>> done) override { refuse(done); }
  service::ServiceResult<std::unique_ptr<service::Consumer>> consume(const Who&, std::string, std::string,
                                                                     service::Deliver,
                                                                     service::Ended) override {
    return std::unexpected(service::Problem{});
  }
  void heartbeat(const Who&, std::vector<Lease>, std::optional<std::chrono::milliseconds>,
                 Done<std::vector<Beat>> done) override {
    refuse(done);
  }
  void settle(const Who&, std::vector<Settlement>, Done<std::vector<Verdict>> done) override { refuse(done); }
  void progress(const Who&, std::vector<ProgressReport>, Done<std::vector<Verdict>> done) override {
    refuse(done);
  }
  void check(const Who&, std::vector<Lease>, Done<std::vector<Verdict>> done) override { refuse(done); }
  void resolve(const Who&, std::vector<Lease>,
               Done<std::vector<std::optional<Outcome::Kind>>> done) override {
    refuse(done);
  }
  void begin_effects(const Who&, std::vector<EffectKey>, Done<std::vector<Effect>> done) override {
    refuse(done);
  }
  void record_effects(const Who&, std::vector<EffectResult>, Done<std::vector<Effect>> done) override {
    refuse(done);
  }
  void forget_effects(const Who&, std::vector<EffectKey>, Done<std::vector<Verdict>> done) override {
    refuse(done);
  }
  void job(const Who&, JobId, Done<JobHistory> done) override { refuse(done); }
  void list(const Who&, ListRequest, std::string, Done<service::Page> done) override { refuse(done); }
  void queues(const Who&, Done<std::vector<service::QueueOverview>> done) override { refuse(done); }
  void set_queue(const Who&, std::string, QueueSettings, bool, Done<service::QueueOverview> done) override {
    refuse(done);
  }
  void delete_queue(const Who&, std::string, Done<QueueDeletion> done) override { refuse(done); }
  void decide_effect(const Who&, EffectFinding, Done<DecideStatus> done) override { refuse(done); }
  void cancel(const Who&, service::Selection, std::string,
              Done<service::Changed<CancelStatus>> done) override {
    refuse(done);
  }
  void requeue(const Who&, service::Selection, Done<service::Changed<RequeueStatus>> done) override {
    refuse(done);
  }
  void purge(const Who&, service::Selection, Done<service::Changed<PurgeStatus>> done) override {
    refuse(done);
  }
  void stale_writes(const Who&, std::size_t, std::string, Done<StalePage> done) override { refuse(done); }

  service::ServiceResult<std::unique_ptr<EventSubscription>> watch(
      const Who&, std::function<void(const std::shared_ptr<const service::LiveEvent>&)> next,
      service::Ended) override {
    return std::make_unique<Spout>(std::move(next));
  }

  [[nodiscard]] bool ready() const override { return true; }
  void impede(std::string /*why*/) override {}
  [[nodiscard]] std::string why_not_ready() const override { return {}; }
  [[nodiscard]] Counters counters() const override { return {}; }
  void drain() override {}
  void stop() override {}

 private:
  template <class D>
  static void refuse(D& done) {
    done(std::unexpected(service::Problem{}));
  }
  class Spout : public EventSubscription {
   public:
    explicit Spout(std::function<void(const std::shared_ptr<const service::LiveEvent>&)> next)
        : thread_([next = std::move(next)](const std::stop_token& stop) {
            const auto large = std::make_shared<service::LiveEvent>(service::LiveEvent{
                .id = 1, .name = "flood", .queue = "q", .json = '"' + std::string(65'536, 'x') + '"'});
            while (!stop.stop_requested()) {
              next(large);
              std::this_thread::sleep_for(std::chrono::microseconds{100});
            }
          }) {}

   private:
    std::jthread thread_;
  };

  service::ServiceOptions options_{};
};

TEST(HttpFlood, a_reader_that_is_too_slow_is_dropped_and_told) {
  Lines lines;
  Firehose firehose;
  const service::AllowAll everybody;
  const auto server = must(http::HttpServer::start({.log = lines.sink()}, firehose, everybody));
  RawClient slow{server->port()};
  slow.send("GET /v1/events HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return lines.text().find("event_reader_dropped") != std::string::npos; }));
  const std::string everything = slow.read_to_end();
  EXPECT_TRUE(everything.ends_with("reason\":\"the events came faster than they were read\"}\n\n"));
  slow.close();
  EXPECT_TRUE(eventually([&] { return server->counters().connections == 0; }));
}

}  // namespace
}  // namespace faultline::testing
