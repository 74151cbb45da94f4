// A worker by the installed library, and a producer by the installed .proto, in one program.
//
//   outside_remote HOST:PORT

#include <future>
#include <iostream>
#include <string>

#include <faultline/worker.h>
#include <grpcpp/grpcpp.h>

#include "faultline/v1/faultline.grpc.pb.h"

namespace pb = faultline::v1;

namespace {

int fail(const std::string& message) {
  std::cerr << message << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string address = argv[1];

  std::promise<void> greeted;
  faultline::Worker worker = faultline::Worker::connect("faultline://" + address);
  worker.handle("greet", [&](faultline::Context& ctx) {
    greeted.set_value();
    return "hello, " + ctx.payload();
  });
  if (const auto started = worker.start(); !started) return fail(started.error().describe());

  const auto stub = pb::Faultline::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  pb::EnqueueRequest request;
  request.mutable_job()->set_kind("greet");
  request.mutable_job()->set_payload("\"world\"");
  pb::EnqueueResponse added;
  grpc::ClientContext adding;
  if (const auto status = stub->Enqueue(&adding, request, &added); !status.ok())
    return fail(status.error_message());
  greeted.get_future().wait();
  worker.drain();

  pb::GetJobRequest which;
  which.set_id(added.submission().job_id());
  pb::GetJobResponse found;
  grpc::ClientContext asking;
  if (const auto status = stub->GetJob(&asking, which, &found); !status.ok())
    return fail(status.error_message());
  // By its descriptor, which is the program's own.
  std::cout << found.descriptor()->full_name() << ": " << found.job().result() << '\n';
}
