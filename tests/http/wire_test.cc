#include <sys/resource.h>
#include <zlib.h>

#include <set>
#include <thread>

#include "fixture.h"

namespace faultline::testing {
namespace {

/// What concerns bytes and sockets more than jobs.
class HttpWire : public HttpTest {
 protected:
  [[nodiscard]] static std::string post_of(std::string_view body, std::string_view more = {}) {
    return "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n" + std::string{more} + "\r\n" + std::string{body};
  }
};

std::string unzip(const std::string& packed) {
  std::string out(1'048'576, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST_F(HttpWire, a_connection_serves_many_requests) {
  RawClient client = connect();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
    EXPECT_EQ(client.request("GET", "/health").status, 200);
    EXPECT_EQ(client.request("GET", "/nowhere").status, 404);
    EXPECT_EQ(client.request("POST", "/v1/jobs", R"({"kind")").status, 400) << "a bad body does not end it";
  }
  EXPECT_EQ(server_->counters().requests, 80U);
  EXPECT_EQ(server_->counters().connections, 1U);
}

TEST_F(HttpWire, pipelined_requests_are_answered_in_order) {
  RawClient client = connect();
  std::string bytes;
  for (int i = 0; i < 10; ++i) {
    bytes += post_of(R"({"kind":"k","idempotency_key":")" + std::to_string(i) + "\"}");
    bytes += "GET /health HTTP/1.1\r\nHost: t\r\n\r\n";
  }
  client.send(bytes);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(client.read_reply()->status, 201);
    EXPECT_EQ(client.read_reply()->body, R"({"status":"ok"})");
  }
}

TEST_F(HttpWire, a_request_may_come_byte_by_byte) {
  RawClient client = connect();
  for (const char c : post_of(R"({"kind":"k"})")) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.read_reply()->status, 201);
}

TEST_F(HttpWire, a_body_may_come_in_chunks) {
  RawClient client = connect();
  client.send(
      "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "5\r\n{\"kin\r\n7\r\nd\":\"k\"}\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 201);
  EXPECT_EQ(client.read_reply()->status, 200);
}

TEST_F(HttpWire, a_client_may_ask_before_it_sends_its_body) {
  RawClient client = connect();
  const std::string body = R"({"kind":"k"})";
  const std::string request = post_of(body, "Expect: 100-continue\r\n");
  client.send(request.substr(0, request.size() - body.size()));
  EXPECT_EQ(client.read_reply()->status, 100);
  client.send(body);
  EXPECT_EQ(client.read_reply()->status, 201);
  client.send(
      "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 415) << "told before the body was sent";
  EXPECT_EQ(get("/health", "Expect: wonders\r\n").status, 417);
}

TEST_F(HttpWire, head_is_get_without_a_body) {
  RawClient client = connect();
  const Reply head = client.request("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "15");
  EXPECT_EQ(client.request("GET", "/health").body.size(), 15U);
}

TEST_F(HttpWire, what_is_not_http_is_refused_and_the_connection_closed) {
  for (const char* bytes :
       {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost : t\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    RawClient client = connect();
    client.send(bytes);
    const auto reply = client.read_reply();
    ASSERT_TRUE(reply) << bytes;
    EXPECT_EQ(reply->status, 400) << bytes;
    EXPECT_EQ(reply->code(), "malformed") << bytes;
    EXPECT_EQ(client.read_to_end(), "") << bytes;
  }
}

TEST_F(HttpWire, a_head_over_the_limit_is_refused) {
  start_server({.header_max = 1'024});
  RawClient client = connect();
  client.send("GET /health HTTP/1.1\r\nHost: t\r\nX: " + std::string(2'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 431);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(HttpWire, a_body_over_the_limit_is_refused_and_the_client_reads_why) {
  start_server({.body_max = 100'000});
  for (const bool chunked : {false, true}) {
    RawClient client = connect();
    client.send("POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n");
    client.send(chunked ? "Transfer-Encoding: chunked\r\n\r\n1e8480\r\n" : "Content-Length: 2000000\r\n\r\n");
    // The server reads on for a while, so that its answer is not lost in a reset.
    for (int i = 0; i < 20; ++i) {
      if (!client.send(std::string(100'000, ' '))) break;
    }
    const auto reply = client.read_reply();
    ASSERT_TRUE(reply) << chunked;
    EXPECT_EQ(reply->status, 413);
    EXPECT_EQ(reply->code(), "too_large");
    EXPECT_EQ(reply->header("connection"), "close");
  }
}

TEST_F(HttpWire, a_transfer_coding_that_is_not_understood_ends_the_connection) {
  const std::string next = "GET /health HTTP/1.1\r\nHost: t\r\n\r\n";
  const auto post = [](std::string_view version, std::string_view coding) {
    return "POST /v1/jobs HTTP/" + std::string{version} +
           "\r\nHost: t\r\nContent-Type: application/json\r\n" + std::string{coding} + "\r\n";
  };
  struct Case {
    std::string head;
    int status;
  };
  for (const auto& [head, status] :
       {Case{post("1.1", "Transfer-Encoding: gzip\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: identity\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: xchunked\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: chunked, gzip\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding:\r\n"), 400},
        Case{post("1.0", "Transfer-Encoding: chunked\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: gzip\r\nContent-Length: 3\r\n"), 400},
        Case{post("1.1", "Transfer-Encoding: gzip, chunked\r\n"), 501},
        Case{post("1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 501}}) {
    RawClient client = connect();
    client.send(head + next);
    const auto reply = client.read_reply();
    ASSERT_TRUE(reply) << head;
    EXPECT_EQ(reply->status, status) << head;
    EXPECT_EQ(client.read_to_end(), "") << "what follows is no request: " << head;
  }
  RawClient client = connect();
  client.send(post("1.1", "Transfer-Encoding: Chunked\r\n") + "c\r\n{\"kind\":\"k\"}\r\n0\r\n\r\n" + next);
  EXPECT_EQ(client.read_reply()->status, 201);
  EXPECT_EQ(client.read_reply()->status, 200);
}

TEST_F(HttpWire, large_bodies_together_are_bounded_by_what_has_come_of_them) {
  start_server({.body_max = 100'000});
  const std::string_view head = "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n";
  const std::string start = R"({"kind":"k","payload":")" + std::string(99'000, 'x');
  const std::string end = "\"}";
  const std::string length = std::to_string(start.size() + end.size());
  const auto large = [&] { return post("/v1/jobs", start + end).status; };
  constexpr std::size_t kClients = 12;
  std::vector<RawClient> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(connect());
    clients.back().send(std::string{head} + (i % 2 == 0
                                                 ? "Content-Length: " + length + "\r\n\r\n"
                                                 : "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n182ce\r\n"));
  }
  ASSERT_EQ(std::stoul("182ce", nullptr, 16), start.size() - 1);
  ASSERT_TRUE(eventually([&] { return server_->counters().requests == kClients; }));
  EXPECT_EQ(large(), 201) << "who has only announced something takes nothing from others";

  for (std::size_t i = 0; i < kClients; ++i) clients[i].send(std::string_view{start}.substr(i % 2));
  // There is room for eight. Where they are read in turns, more than four are refused before the first is
  // whole.
  ASSERT_TRUE(eventually([&] { return server_->counters().connections <= 8; })) << "the others are refused";
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"small"})").status, 201);
  std::multiset<int> statuses;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients[i].send(i % 2 == 0 ? end : "\r\n2\r\n" + end + "\r\n0\r\n\r\n");
    const auto reply = clients[i].read_reply();
    ASSERT_TRUE(reply);
    statuses.insert(reply->status);
    EXPECT_TRUE(reply->status == 201 || reply->code() == "overloaded") << reply->body;
  }
  EXPECT_GE(statuses.count(201), 1U);
  EXPECT_GE(statuses.count(429), 4U);
  EXPECT_EQ(large(), 201) << "the memory is free again";
}

TEST_F(HttpWire, large_answers_are_compressed_for_those_who_ask) {
  const std::string id = add({{"kind", "k"}, {"payload", std::string(50'000, 'a')}});
  RawClient client = connect();
  const Reply plain = client.request("GET", "/v1/jobs/" + id);
  EXPECT_EQ(plain.header("content-encoding"), "");
  const Reply packed = client.request("GET", "/v1/jobs/" + id, {}, "Accept-Encoding: br, gzip\r\n");
  EXPECT_EQ(packed.header("content-encoding"), "gzip");
  EXPECT_LT(packed.body.size(), 5'000U);
  EXPECT_EQ(unzip(packed.body), plain.body);
  EXPECT_EQ(client.request("GET", "/health", {}, "Accept-Encoding: gzip\r\n").header("content-encoding"), "");
}

TEST_F(HttpWire, slow_clients_are_cut_off) {
  start_server({.header_timeout = ms{200}, .body_timeout = ms{200}, .idle_timeout = ms{200}});
  RawClient silent = connect();
  EXPECT_EQ(silent.read_to_end(), "");

  RawClient head = connect();
  head.send("GET /health HT");
  EXPECT_EQ(head.read_reply()->status, 408);
  EXPECT_EQ(head.read_to_end(), "");

  RawClient body = connect();
  body.send(
      "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{");
  EXPECT_EQ(body.read_reply()->status, 408);

  RawClient idle = connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_GE(server_->counters().timeouts, 4U);
  EXPECT_TRUE(eventually([&] { return server_->counters().connections == 0; }));
}

TEST_F(HttpWire, a_client_that_does_not_read_is_cut_off) {
  const std::string id = add({{"kind", "k"}, {"payload", std::string(1'000'000, 'a')}});
  start_server({.write_timeout = ms{300}});
  RawClient client = connect();
  client.shrink_receive_buffer();
  for (int i = 0; i < 20; ++i) client.send("GET /v1/jobs/" + id + " HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server_->counters().timeouts == 1; }));
  EXPECT_TRUE(eventually([&] { return server_->counters().connections == 0; }));
}

TEST_F(HttpWire, connections_over_the_limit_are_turned_away_when_all_others_have_a_request) {
  start_server({.connections_max = 2});
  const std::string waits = R"({"worker":"w","wait_ms":30000})";
  std::vector<RawClient> workers;
  for (int i = 0; i < 2; ++i) {
    workers.push_back(connect());
    workers.back().send(
        "POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(waits.size()) + "\r\n\r\n" + waits);
  }
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 2; }));
  RawClient third = connect();
  EXPECT_EQ(third.read_to_end().substr(0, 12), "HTTP/1.1 503");
  EXPECT_EQ(server_->counters().refused_connections, 1U);
  workers.pop_back();
  ASSERT_TRUE(eventually([&] { return server_->counters().connections < 2; }));
  EXPECT_EQ(connect().request("GET", "/health").status, 200);
}

TEST_F(HttpWire, who_waits_longest_without_an_admitted_call_makes_room_for_the_next) {
  start_server({.connections_max = 4});
  RawClient silent = connect();
  ASSERT_TRUE(eventually([&] { return server_->counters().connections == 1; }));
  RawClient slow = connect();
  slow.send("POST /v1/jobs HTTP/1.1\r\nHo");
  ASSERT_TRUE(eventually([&] { return server_->counters().connections == 2; }));
  RawClient producer = connect();
  EXPECT_EQ(producer.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
  RawClient probe = connect();
  EXPECT_EQ(probe.request("GET", "/health").status, 200);

  RawClient fifth = connect();
  EXPECT_EQ(fifth.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
  EXPECT_EQ(silent.read_to_end(), "");
  RawClient sixth = connect();
  EXPECT_EQ(sixth.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
  EXPECT_EQ(slow.read_to_end(), "") << "a byte now and then is no request";
  RawClient seventh = connect();
  EXPECT_EQ(seventh.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
  EXPECT_EQ(probe.read_to_end(), "") << "what everybody may ask gives no right to stay";
  // Now all have made calls, and the one whose call is longest ago goes.
  EXPECT_EQ(connect().request("GET", "/health").status, 200);
  EXPECT_EQ(producer.read_to_end(), "");
  EXPECT_EQ(sixth.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
}

TEST_F(HttpWire, a_thousand_trickling_clients_do_not_keep_an_honest_one_waiting) {
  constexpr std::size_t kClients = 1'000;
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8'192);
  setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GE(files.rlim_cur, 2 * kClients + 200) << "this test needs more file descriptors: see ulimit -Hn";
  start_server({.header_timeout = ms{600'000}});
  std::vector<RawClient> tricklers;
  for (std::size_t i = 0; i < kClients; ++i) tricklers.push_back(connect());
  ASSERT_TRUE(eventually([&] { return server_->counters().connections == kClients; }));
  std::atomic<std::size_t> turns = 0;
  std::jthread trickle{[&](const std::stop_token& stop) {
    const std::string_view head = "POST /v1/jobs HTTP/1.1\r\nHost: trickle\r\nX-Slow: ";
    for (std::size_t i = 0; !stop.stop_requested(); ++i) {
      for (RawClient& client : tricklers)
        static_cast<void>(client.send(i < head.size() ? head.substr(i, 1) : "x"));
      ++turns;
    }
  }};
  RawClient honest = connect();
  while (turns < 3) {  // they trickle all the while
    EXPECT_EQ(honest.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201);
    EXPECT_EQ(get("/health").status, 200) << "nor a new one";
  }
  EXPECT_TRUE(eventually([&] { return server_->counters().connections == kClients + 1; }))
      << "all of them are still there";
}

TEST_F(HttpWire, a_drain_answers_what_is_under_way_and_closes) {
  RawClient idle = connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  RawClient waiting = connect();
  const std::string body = R"({"worker":"w","wait_ms":30000})";
  waiting.send("POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  RawClient events = connect();
  events.send("GET /v1/events HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(events.read_reply()->status, 200);
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 1; }));
  std::jthread drain{[&] { server_->drain(soon()); }};
  EXPECT_EQ(idle.read_to_end(), "");
  idle.close();
  const auto reply = waiting.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->header("connection"), "close");
  waiting.close();
  static_cast<void>(events.read_to_end());
  events.close();
  drain.join();
  EXPECT_EQ(server_->counters().connections, 0U);
  EXPECT_THROW(static_cast<void>(connect()), std::runtime_error);
}

TEST_F(HttpWire, cross_origin_access_is_off_unless_an_origin_is_named) {
  const std::string_view preflight = "Origin: https://app.test\r\nAccess-Control-Request-Method: POST\r\n";
  EXPECT_EQ(get("/health", "Origin: https://app.test\r\n").header("access-control-allow-origin"), "");
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"k"})", "Origin: https://app.test\r\n").status, 403);
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"k"})", "Origin: http://localhost\r\n").status, 201)
      << "its own pages may";
  start_server({.cors_origin = "https://app.test"});
  const Reply allowed = connect().request("OPTIONS", "/v1/jobs", {}, preflight);
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "https://app.test");
  EXPECT_EQ(allowed.header("access-control-allow-methods"), "POST, GET, HEAD");
  const Reply written = post("/v1/jobs", R"({"kind":"k"})", "Origin: https://app.test\r\n");
  EXPECT_EQ(written.status, 201);
  EXPECT_EQ(written.header("access-control-allow-origin"), "https://app.test");
  EXPECT_EQ(get("/health", "Origin: https://evil.test\r\n").header("access-control-allow-origin"), "");
  start_server({.cors_origin = "*"});
  const Reply anybody = post("/v1/jobs", R"({"kind":"k"})", "Origin: https://any.test\r\n");
  EXPECT_EQ(anybody.status, 201);
  EXPECT_EQ(anybody.header("access-control-allow-origin"), "*");
}

TEST_F(HttpWire, pages_of_other_sites_are_told_apart_by_what_browsers_say) {
  for (const std::string_view method : {"GET", "POST"}) {
    const std::string body = method == "POST" ? R"({"kind":"k"})" : "";
    const auto status = [&](std::string_view headers) {
      return connect().request(method, "/v1/jobs", body, headers).status;
    };
    const int good = method == "POST" ? 201 : 200;
    EXPECT_EQ(status("Sec-Fetch-Site: cross-site\r\n"), 403);
    EXPECT_EQ(status("Sec-Fetch-Site: cross-site\r\nOrigin: https://evil.test\r\n"), 403);
    EXPECT_EQ(status("Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n"), good);
    EXPECT_EQ(status("Sec-Fetch-Site: none\r\n"), good) << "typed in by a person";
  }
  EXPECT_EQ(get("/health", "Sec-Fetch-Site: cross-site\r\n").status, 200) << "it tells nothing";
  start_server({.cors_origin = "https://app.test"});
  EXPECT_EQ(get("/v1/jobs", "Sec-Fetch-Site: cross-site\r\nOrigin: https://app.test\r\n").status, 200);
  EXPECT_EQ(get("/v1/jobs", "Sec-Fetch-Site: cross-site\r\n").status, 403);
}

TEST_F(HttpWire, with_a_list_of_names_calls_under_another_are_misdirected) {
  start_server({.hosts = std::vector<std::string>{"localhost", "[::1]", "queue.test"}});
  const auto status = [&](std::string_view target, std::string_view host) {
    RawClient client = connect();
    client.send("GET " + std::string{target} + " HTTP/1.1\r\nHost: " + std::string{host} + "\r\n\r\n");
    return client.read_reply().value().status;
  };
  for (const char* host : {"localhost", "LocalHost:8000", "[::1]", "[::1]:8000", "queue.test:80"})
    EXPECT_EQ(status("/v1/jobs", host), 200) << host;
  for (const char* host : {"evil.test", "evil.test:8000", "localhost.evil.test", "notlocalhost", "[::2]:8000",
                           "[localhost]", "[", "127.0.0.1.evil.test", "localhost."}) {
    EXPECT_EQ(status("/v1/jobs", host), 421) << host;
    EXPECT_EQ(status("/metrics", host), 421) << host;
    EXPECT_EQ(status("/health", host), 200) << "load balancers ask by address: " << host;
  }
}

TEST_F(HttpWire, an_answer_survives_a_client_that_only_said_its_last_word) {
  const ProcessResult curl = run_process(
      {.argv = {"curl", "-sS", "--http1.1", "-H", "Content-Type: application/json", "-d", R"({"kind":"k"})",
                "http://127.0.0.1:" + std::to_string(server_->port()) + "/v1/jobs"}});
  EXPECT_EQ(curl.exit_code, 0) << curl.err;
  EXPECT_EQ(Json::parse(curl.out)["status"], "created");
}

TEST_F(HttpWire, a_server_ends_while_clients_wait) {
  std::vector<RawClient> clients;
  const std::string body = R"({"worker":"w","wait_ms":30000})";
  for (int i = 0; i < 10; ++i) {
    clients.push_back(connect());
    clients.back().send(
        "POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 10; }));
  server_.reset();
  EXPECT_EQ(service_->counters().consumers, 0U);
  for (RawClient& client : clients) EXPECT_FALSE(client.read_reply());
}

TEST_F(HttpWire, an_address_that_cannot_be_had_is_an_error_that_names_it) {
  const auto taken =
      http::HttpServer::start({.port = server_->port(), .log = lines_.sink()}, *service_, allow_all_);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find(std::to_string(server_->port())), std::string::npos);
}

}  // namespace
}  // namespace faultline::testing
