#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "faultline/v1/faultline.grpc.pb.h"
#include "rpc/rpc_server.h"
#include "service/service.h"
#include "store/fixture.h"
#include "wire/convert.h"
#include "wire/failure.h"

namespace faultline::testing {

namespace pb = ::faultline::v1;

/// Knows keys that are named after what they are good for.
class Keys : public service::Authenticator {
 public:
  [[nodiscard]] service::ServiceResult<service::Principal> authenticate(
      std::string_view bearer) const override {
    const auto key = keys_.find(std::string{bearer});
    if (key != keys_.end()) return key->second;
    return std::unexpected(service::Problem{
        .code = service::Code::unauthenticated, .message = "no such key", .hint = "send one"});
  }

 private:
  using Scope = service::Scope;
  std::map<std::string, service::Principal> keys_{
      {"produce", {.name = "produce", .scopes = {Scope::produce}}},
      {"work", {.name = "work", .scopes = {Scope::work}}},
      {"read", {.name = "read", .scopes = {Scope::read}}},
      {"admin", {.name = "admin", .scopes = {Scope::admin}}},
      {"nothing", {.name = "nothing", .scopes = {}}},
      {"bound",
       {.name = "bound",
        .scopes = {Scope::produce, Scope::work, Scope::read, Scope::admin},
        .queues = std::vector<std::string>{"other"}}},
  };
};

/// A call with a deadline, so that a test that would hang fails.
class CallContext : public grpc::ClientContext {
 public:
  explicit CallContext(const std::string& bearer = {}) {
    set_deadline(std::chrono::system_clock::now() + std::chrono::seconds{100});
    if (!bearer.empty()) AddMetadata("authorization", "Bearer " + bearer);
  }
};

/// One StreamJobs call, as a worker has it.
class Stream {
 public:
  explicit Stream(pb::Faultline::Stub& stub, std::string worker = "w", std::string queue = "default",
                  const std::string& bearer = {})
      : context_(bearer),
        stream_(stub.StreamJobs(&context_)),
        worker_(std::move(worker)),
        queue_(std::move(queue)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (!ended_) static_cast<void>(cancel());
  }

  bool grant(std::int64_t credit) {
    pb::StreamJobsRequest request;
    if (sequence_ == 0) {
      request.set_queue(queue_);
      request.set_worker(worker_);
    }
    request.set_credit(credit);
    request.set_sequence(++sequence_);
    return stream_->Write(request);
  }
  [[nodiscard]] std::int64_t sequence() const { return sequence_; }
  /// The next message, or nothing when the stream has ended.
  std::optional<pb::StreamJobsResponse> read() {
    pb::StreamJobsResponse response;
    if (!stream_->Read(&response)) return std::nullopt;
    return response;
  }
  /// Reads until it has this many jobs; fewer only if the stream ended.
  std::vector<pb::JobAssignment> read_jobs(std::size_t count) {
    std::vector<pb::JobAssignment> jobs;
    while (jobs.size() < count) {
      const auto response = read();
      if (!response) break;
      jobs.insert(jobs.end(), response->jobs().begin(), response->jobs().end());
    }
    return jobs;
  }
  /// Until the server writes its first message.
  void wait_until_it_begins() { stream_->WaitForInitialMetadata(); }
  void half_close() { stream_->WritesDone(); }
  grpc::Status finish() {
    ended_ = true;
    return stream_->Finish();
  }
  grpc::Status cancel() {
    context_.TryCancel();
    return finish();
  }

 private:
  CallContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::StreamJobsRequest, pb::StreamJobsResponse>> stream_;
  std::string worker_;
  std::string queue_;
  std::int64_t sequence_ = 0;
  bool ended_ = false;
};

/// A gRPC server over a real service, on a database whose clock the test moves.
class RpcTest : public StoreTest {
 protected:
  RpcTest() : service_(make_service()) {
    if (!eventually([&] { return service_->ready(); })) throw std::runtime_error(service_->why_not_ready());
  }
  ~RpcTest() override {
    stub_.reset();
    server_.reset();
    service_->stop();
  }

  std::unique_ptr<service::Service> make_service() {
    return service::Service::start(
        {.database = database_.dsn(),
         .poll_max = ms{50},
         .log = [](const Event&) {},
         .still_good = [this](const service::Principal& who) { return authenticator_->still_good(who); }});
  }

  rpc::RpcServer& serve(rpc::RpcServerOptions options = {}) {
    options.log = [](const Event&) {};
    stub_.reset();
    server_.reset();
    server_ = must(rpc::RpcServer::start(std::move(options), *service_, *authenticator_));
    stub_ = pb::Faultline::NewStub(channel());
    return *server_;
  }
  void ask_for_keys() { authenticator_ = std::make_unique<Keys>(); }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  /// A connection of its own.
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials =
          grpc::InsecureChannelCredentials()) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // With a window that does not grow: what a client takes that does not read is little.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return grpc::CreateCustomChannel(address(), credentials, arguments);
  }
  [[nodiscard]] pb::Faultline::Stub& stub() { return *stub_; }

  /// Calls one method.
  template <class Request, class Response>
  grpc::Status call(grpc::Status (pb::Faultline::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                Response*),
                    const Request& request, Response& response, const std::string& bearer = {}) {
    CallContext context{bearer};
    return ((*stub_).*method)(&context, request, &response);
  }
  template <class Request, class Response>
  Response must_call(grpc::Status (pb::Faultline::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                 Response*),
                     const Request& request) {
    Response response;
    const grpc::Status status = call(method, request, response);
    if (!status.ok()) throw std::runtime_error(status.error_message());
    return response;
  }

  /// As testing::eventually. A client without threads of its own moves only while it makes a call, so one is
  /// made at every look, for what other calls on the connection still have to send.
  [[nodiscard]] bool eventually(const std::function<bool()>& condition) {
    return testing::eventually([&] {
      pb::ListQueuesResponse response;
      if (stub_) static_cast<void>(call(&pb::Faultline::Stub::ListQueues, pb::ListQueuesRequest{}, response));
      return condition();
    });
  }

  pb::JobAssignment take_one(const std::string& worker) {
    Stream stream{stub(), worker};
    stream.grant(1);
    auto jobs = stream.read_jobs(1);
    if (jobs.empty()) throw std::runtime_error("the stream ended: " + stream.finish().error_message());
    return std::move(jobs.front());
  }
  std::int64_t running() {
    return number("SELECT count(*) FROM faultline.jobs WHERE queue <> '' AND state = 'running'");
  }

  std::unique_ptr<service::Authenticator> authenticator_ = std::make_unique<service::AllowAll>();
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<pb::Faultline::Stub> stub_;
};

inline pb::ReportResultRequest report(const pb::JobAssignment& job,
                                      pb::Outcome::Kind kind = pb::Outcome::SUCCEEDED) {
  pb::ReportResultRequest request;
  auto& result = *request.add_results();
  *result.mutable_lease() = job.lease();
  result.mutable_outcome()->set_kind(kind);
  return request;
}

}  // namespace faultline::testing
