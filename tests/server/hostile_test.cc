// Clients without a key that take what they can get: connections, descriptors, memory.

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "faultline/v1/faultline.grpc.pb.h"
#include "http/client.h"
#include "serve_process.h"
#include "support/database.h"

namespace faultline::testing {
namespace {

namespace pb = ::faultline::v1;
using ::testing::HasSubstr;

/// This process needs a descriptor for each of its clients.
void raise_own_limit() {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8'192);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  ASSERT_GE(files.rlim_cur, 2'000U) << "this test needs more file descriptors: see ulimit -Hn";
}

std::vector<RawClient> crowd(std::uint16_t port, int size) {
  std::vector<RawClient> clients;
  for (int i = 0; i < size; ++i) clients.emplace_back(port);
  return clients;
}

/// With a connection of its own.
std::unique_ptr<pb::Faultline::Stub> stub_of(std::uint16_t port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return pb::Faultline::NewStub(grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                          grpc::InsecureChannelCredentials(), arguments));
}

grpc::Status call(std::uint16_t port) {
  const auto stub = stub_of(port);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds{60});
  context.set_wait_for_ready(true);
  pb::ListQueuesResponse response;
  return stub->ListQueues(&context, {}, &response);
}

std::ptrdiff_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator all{"/proc/" + std::to_string(pid) + "/fd"};
  return std::distance(begin(all), end(all));
}

TEST(HostileTest, silent_clients_beyond_the_descriptors_keep_nobody_out) {
  raise_own_limit();
  const TestDatabase database;
  ServeProcess server{database.dsn(), {}, {}, {"prlimit", "--nofile=200:200"}};
  server.wait_until_ready();
  EXPECT_THAT(server.process().err(), HasSubstr("connections_limited"));
  {
    const auto to_grpc = crowd(server.grpc_port(), 400);
    const auto to_http = crowd(server.http_port(), 400);
    EXPECT_TRUE(call(server.grpc_port()).ok()) << server.process().err();
    EXPECT_EQ(http_get(server.http_port(), "/health").status, 200);
    EXPECT_EQ(http_get(server.http_port(), "/ready").status, 200);
    EXPECT_LT(descriptors_of(server.process().pid()), 200);
  }
  EXPECT_TRUE(call(server.grpc_port()).ok()) << server.process().err();
  EXPECT_EQ(http_get(server.http_port(), "/ready").status, 200);
}

TEST(HostileTest, a_server_that_cannot_take_connections_is_not_ready_until_it_can_again) {
  const TestDatabase database;
  ServeProcess server{database.dsn()};
  server.wait_until_ready();
  RawClient early{server.http_port()};
  ASSERT_EQ(early.request("GET", "/ready").status, 200);
  rlimit before{};
  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, &none, nullptr), 0);

  Reply refused;
  EXPECT_TRUE(eventually([&] { return (refused = early.request("GET", "/ready")).status == 503; }));
  EXPECT_THAT(refused.body, HasSubstr("gRPC does not answer"));
  EXPECT_EQ(early.request("POST", "/v1/jobs", R"({"kind":"k"})").status, 201) << "who is there is served";

  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_TRUE(eventually([&] { return early.request("GET", "/ready").status == 200; }));
  EXPECT_TRUE(call(server.grpc_port()).ok());
  EXPECT_THAT(server.process().err(), HasSubstr("wires_answered"));
}

/// One of the figures of /proc/PID/status, in MiB.
std::int64_t memory_mib(pid_t pid, std::string_view name) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string word; status >> word;) {
    if (word != name) continue;
    std::int64_t kib = 0;
    status >> kib;
    return kib / 1'024;
  }
  throw std::runtime_error("no " + std::string{name});
}

std::string http2_frame(char type, char flags, std::uint32_t stream, std::string_view payload) {
  const auto byte = [](std::size_t value, int shift) { return static_cast<char>(value >> shift & 0xff); };
  std::string frame{byte(payload.size(), 16), byte(payload.size(), 8), byte(payload.size(), 0), type, flags};
  for (const int shift : {24, 16, 8, 0}) frame += byte(stream, shift);
  return frame.append(payload);
}

/// Opens streams and resets them at once, up to so many or until the server hangs up. Returns how many.
std::uint32_t reset_streams(std::uint16_t port, const std::string& method, std::uint32_t count) {
  using namespace std::string_view_literals;
  const std::string head = "\x83\x86\x04" + std::string(1, static_cast<char>(method.size())) + method +
                           "\x01\x09"
                           "faultline\x0f\x10\x10"
                           "application/grpc" +
                           std::string{"\x00\x02te\x08trailers"sv};
  const RawClient client{port};
  client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, ""));
  std::string batch;
  for (std::uint32_t i = 0; i < count; ++i) {
    batch += http2_frame(1, 4, 2 * i + 1, head) + http2_frame(3, 0, 2 * i + 1, "\0\0\0\x08"sv);
    if (i % 500 != 499) continue;
    if (!client.send(batch)) return i;
    batch.clear();
  }
  return count;
}

TEST(HostileTest, streams_that_are_opened_and_reset_at_once_take_little_memory) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--auth", "keys"}};
  server.wait_until_ready();
  constexpr std::uint32_t kStreams = 100'000;
  for (const char* method : {"/faultline.v1.Faultline/StreamJobs", "/faultline.v1.Faultline/Enqueue",
                             "/faultline.v1.Faultline/Nothing", "/grpc.health.v1.Health/Check"}) {
    reset_streams(server.grpc_port(), method, kStreams);
    EXPECT_EQ(call(server.grpc_port()).error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << "others are answered";
  }
  // Two million bytes of memory for every hundred streams, if all were kept: 8 GB.
  EXPECT_LT(memory_mib(server.process().pid(), "VmHWM:"), 1'000) << server.process().err();
  EXPECT_TRUE(eventually([&] { return server.process().err().contains("grpc_flood_cut"); }));
  EXPECT_EQ(http_get(server.http_port(), "/ready").status, 200);
}

TEST(HostileTest, a_large_first_call_is_no_flood) {
  const TestDatabase database;
  ServeProcess server{database.dsn()};
  server.wait_until_ready();
  pb::EnqueueBatchRequest batch;
  for (int i = 0; i < 12; ++i) {
    auto& job = *batch.add_jobs();
    job.set_kind("k");
    job.set_payload("\"" + std::string(1'000'000, 'x') + "\"");
  }
  std::vector<std::future<grpc::Status>> producers;
  for (int i = 0; i < 4; ++i) {
    producers.push_back(std::async(std::launch::async, [&] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds{100});
      pb::EnqueueBatchResponse response;
      return stub_of(server.grpc_port())->EnqueueBatch(&context, batch, &response);
    }));
  }
  for (auto& producer : producers) EXPECT_EQ(producer.get().error_message(), "");
  EXPECT_EQ(call(server.grpc_port()).error_message(), "");
  EXPECT_FALSE(server.process().err().contains("grpc_flood_cut")) << server.process().err();
}

TEST(HostileTest, without_keys_it_answers_under_its_own_names_only) {
  const TestDatabase database;
  const auto status = [](ServeProcess& server, const std::string& host) {
    return http(server.http_port(), {.target = "/v1/queues", .headers = {{"Host", host}}}).status;
  };
  ServeProcess server{database.dsn(), {"--hosts", "queue.test,[fd00::1]"}};
  server.wait_until_ready();
  for (const char* host : {"localhost:8000", "127.0.0.1", "[::1]:8000", "queue.test", "[fd00::1]:80"})
    EXPECT_EQ(status(server, host), 200) << host;
  EXPECT_EQ(status(server, "evil.test"), 421);
  EXPECT_EQ(status(server, "10.0.0.1:8000"), 421);

  ServeProcess with_keys{database.dsn(), {"--auth", "keys"}};
  with_keys.wait_until_ready();
  EXPECT_EQ(status(with_keys, "evil.test"), 401) << "a page has no key";
}

}  // namespace
}  // namespace faultline::testing
