#include "trace/exporter.h"

#include <gmock/gmock.h>

#include "collector.h"
#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using trace::Exporter;
using trace::Span;

Span a_span(std::string name = "execute k") {
  const TraceContext context = TraceContext::parse(kTraceparent).value();
  return {.context = context,
          .parent = SpanId{1, 2, 3, 4, 5, 6, 7, 8},
          .name = std::move(name),
          .kind = Span::Kind::consumer,
          .start = trace::Time{1'700'000'000s + 1ns},
          .end = trace::Time{1'700'000'001s},
          .attributes = {{"faultline.queue", "q"}, {"faultline.token", std::int64_t{7}}}};
}

class ExporterTest : public ::testing::Test {
 protected:
  [[nodiscard]] trace::ExporterOptions options(std::string endpoint) {
    return {.endpoint = std::move(endpoint),
            .resource = {.service_name = "faultline-worker", .instance = "w"},
            .log = events_.sink(),
            .interval = 1ms,
            .tries = 3,
            .backoff_min = 1ms,
            .backoff_max = 2ms};
  }
  /// An address that nobody listens on.
  static std::string nowhere() {
    const Collector gone;
    return gone.endpoint();
  }

  Events events_;
};

TEST_F(ExporterTest, sends_what_opentelemetry_expects) {
  const Collector collector;
  const auto exporter = must(Exporter::start(options(collector.endpoint() + "/otlp/")));
  Span failed = a_span("enqueue k");
  failed.parent.reset();
  failed.kind = Span::Kind::producer;
  failed.error = "no \"luck\"";
  failed.events = {
      {.name = "stale_write_blocked", .at = failed.end, .attributes = {{"faultline.verb", "succeeded"}}}};
  exporter->add(a_span());
  exporter->add(failed);

  const std::vector<Json> spans = collector.wait_for_spans(2);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0],
            Json::parse(R"({"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331",
    "parentSpanId": "0102030405060708", "name": "execute k", "kind": 5,
    "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000001000000000",
    "attributes": [{"key": "faultline.queue", "value": {"stringValue": "q"}},
                   {"key": "faultline.token", "value": {"intValue": "7"}}]})"));
  EXPECT_EQ(spans[1]["kind"], 4);
  EXPECT_FALSE(spans[1].contains("parentSpanId"));
  EXPECT_EQ(spans[1]["status"], Json::parse(R"({"code": 2, "message": "no \"luck\""})"));
  EXPECT_EQ(spans[1]["events"][0]["name"], "stale_write_blocked");
  EXPECT_EQ(spans[1]["events"][0]["timeUnixNano"], "1700000001000000000");
  const Collector::Request request = collector.requests().front();
  EXPECT_THAT(request.head, HasSubstr("POST /otlp/v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(request.head, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(Json::parse(request.body)["resourceSpans"][0]["resource"]["attributes"],
            Json::parse(R"([{"key": "service.name", "value": {"stringValue": "faultline-worker"}},
                            {"key": "service.instance.id", "value": {"stringValue": "w"}}])"));
}

TEST_F(ExporterTest, sends_again_what_a_busy_collector_did_not_take) {
  Collector collector;
  collector.answer_with({503, 429});
  const auto exporter = must(Exporter::start(options(collector.endpoint())));
  exporter->add(a_span());

  EXPECT_EQ(collector.wait_for_spans(1).size(), 1U);
  EXPECT_EQ(collector.requests().size(), 3U);
  EXPECT_TRUE(eventually([&] { return exporter->counters().exported == 1; }));
  EXPECT_EQ(exporter->counters().dropped, 0U);
}

TEST_F(ExporterTest, does_not_send_again_what_was_refused) {
  Collector collector;
  collector.answer_with({400});
  const auto exporter = must(Exporter::start(options(collector.endpoint())));
  exporter->add(a_span());

  EXPECT_TRUE(eventually([&] { return events_.count("spans_dropped") == 1; }));
  EXPECT_EQ(exporter->counters().dropped, 1U);
  EXPECT_EQ(collector.requests().size(), 1U);
  EXPECT_EQ(events_.of("spans_dropped").front().fields,
            (std::vector<std::pair<std::string, std::string>>{{"spans", "1"},
                                                              {"why", "the collector answered 400"}}));
}

TEST_F(ExporterTest, drops_counts_and_tells_once_when_nobody_listens) {
  auto made = options(nowhere());
  made.waiting_max = 10;
  const auto exporter = must(Exporter::start(std::move(made)));
  for (int i = 0; i < 100; ++i) exporter->add(a_span());

  EXPECT_TRUE(eventually([&] { return exporter->counters().dropped == 100; }));
  EXPECT_EQ(exporter->counters().exported, 0U);
  EXPECT_TRUE(eventually([&] { return events_.count("spans_dropped") > 0; }));
  exporter->add(a_span());
  EXPECT_TRUE(eventually([&] { return exporter->counters().dropped == 101; }));
  EXPECT_EQ(events_.count("spans_dropped"), 1U) << "within a minute";
}

TEST_F(ExporterTest, sends_what_waits_before_it_ends) {
  const Collector collector;
  auto made = options(collector.endpoint());
  made.interval = 1h;
  const auto exporter = must(Exporter::start(std::move(made)));
  for (int i = 0; i < 1'000; ++i) exporter->add(a_span());
  exporter->finish(soon());

  EXPECT_EQ(collector.spans().size(), 1'000U);
  EXPECT_EQ(exporter->counters().exported, 1'000U);
  exporter->add(a_span());
  EXPECT_EQ(exporter->counters().dropped, 1U) << "it is over";
}

TEST_F(ExporterTest, does_not_wait_longer_than_it_may_for_a_collector_that_is_silent) {
  Collector collector;
  collector.answer_with({0});
  auto made = options(collector.endpoint());
  made.timeout = 1h;
  const auto exporter = must(Exporter::start(std::move(made)));
  exporter->add(a_span());
  ASSERT_TRUE(eventually([&] { return collector.requests().size() == 1; }));
  exporter->add(a_span());
  exporter->finish(std::chrono::steady_clock::now());

  EXPECT_EQ(exporter->counters().dropped, 2U);
  std::size_t told = 0;
  for (const Event& event : events_.of("spans_dropped")) told += std::stoul(event.fields.front().second);
  EXPECT_EQ(told, 2U);
}

TEST_F(ExporterTest, gives_a_silent_collector_up_when_its_time_is_over) {
  Collector collector;
  collector.answer_with({0, 0, 0});
  auto made = options(collector.endpoint());
  made.timeout = 20ms;
  const auto exporter = must(Exporter::start(std::move(made)));
  exporter->add(a_span());

  EXPECT_TRUE(eventually([&] { return exporter->counters().dropped == 1; }));
  EXPECT_THAT(events_.of("spans_dropped").front().fields.at(1).second, HasSubstr("no answer in 20 ms"));
}

TEST_F(ExporterTest, refuses_endpoints_that_it_cannot_use) {
  for (const std::string endpoint :
       {"", "127.0.0.1:4318", "http://", "https://", "https://h:0", "http://:4318", "http://h:port",
        "http://h:99999", "http://h:", "http://u:p@h", "http://h/a?b=c", "http://h/a b", "http://[::1",
        "grpc://h:4317"}) {
    EXPECT_FALSE(Exporter::start(options(endpoint))) << endpoint;
  }
  auto without_authority = options("https://h");
  without_authority.ca_file = "/no/such/file.pem";
  EXPECT_THAT(Exporter::start(std::move(without_authority)).error().message, HasSubstr("/no/such/file.pem"));
  for (const double ratio : {-0.1, 1.1, std::nan("")}) {
    auto made = options("http://h");
    made.sample_ratio = ratio;
    EXPECT_FALSE(Exporter::start(std::move(made))) << ratio;
  }
  EXPECT_EQ(must(trace::parse_endpoint("http://[::1]:4318/a/")), "http://[::1]:4318/a");
  EXPECT_EQ(must(trace::parse_endpoint("http://collector")), "http://collector:80");
  EXPECT_EQ(must(trace::parse_endpoint("https://collector/")), "https://collector:443");
}

/// A key and a certificate that is its own authority, for 127.0.0.1.
class Certificate {
 public:
  Certificate() {
    const auto made = run_process(
        {.argv = {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                  "-nodes", "-days", "2", "-subj", "/CN=collector", "-addext", "subjectAltName=IP:127.0.0.1",
                  "-keyout", key(), "-out", file()}});
    if (made.exit_code != 0) throw std::runtime_error(made.err);
  }
  [[nodiscard]] std::string key() const { return dir_ / "key.pem"; }
  [[nodiscard]] std::string file() const { return dir_ / "certificate.pem"; }

 private:
  ScratchDir dir_;
};

class TlsExporterTest : public ExporterTest {
 protected:
  [[nodiscard]] std::string why_dropped() {
    if (!eventually([&] { return events_.count("spans_dropped") == 1; })) return "nothing was dropped";
    return events_.of("spans_dropped").front().fields.at(1).second;
  }

  const Certificate certificate_;
  const Collector collector_{certificate_.file(), certificate_.key()};
};

TEST_F(TlsExporterTest, sends_to_a_collector_of_an_authority_that_it_was_told_to_trust) {
  auto made = options(collector_.endpoint());
  made.ca_file = certificate_.file();
  const auto exporter = must(Exporter::start(std::move(made)));
  exporter->add(a_span("first"));
  ASSERT_EQ(collector_.wait_for_spans(1).size(), 1U);
  exporter->add(a_span("second"));

  const std::vector<Json> spans = collector_.wait_for_spans(2);

  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1]["name"], "second");
  EXPECT_TRUE(eventually([&] { return exporter->counters().exported == 2; }));
  EXPECT_EQ(exporter->counters().dropped, 0U);
}

TEST_F(TlsExporterTest, sends_nothing_to_a_collector_whose_authority_nobody_trusts_and_says_so) {
  const auto exporter = must(Exporter::start(options(collector_.endpoint())));
  exporter->add(a_span());

  EXPECT_THAT(why_dropped(), AllOf(HasSubstr("its certificate is not trusted"), HasSubstr("otlp_ca")));
  EXPECT_TRUE(collector_.requests().empty());
}

TEST_F(TlsExporterTest, sends_nothing_to_a_collector_whose_certificate_is_for_another_host) {
  std::string endpoint = collector_.endpoint();
  endpoint.replace(endpoint.find("127.0.0.1"), std::string_view{"127.0.0.1"}.size(), "localhost");
  auto made = options(endpoint);
  made.ca_file = certificate_.file();
  const auto exporter = must(Exporter::start(std::move(made)));
  exporter->add(a_span());

  EXPECT_THAT(why_dropped(), AllOf(HasSubstr("its certificate is not trusted"), HasSubstr("localhost")));
  EXPECT_TRUE(collector_.requests().empty());
}

}  // namespace
}  // namespace faultline::testing
