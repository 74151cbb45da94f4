#include "http/handlers.h"
#include "http/openapi.h"

namespace faultline::http {

void get_health(const Call& call) { call.exchange->respond({.body = R"({"status":"ok"})"}); }

void get_ready(const Call& call) {
  if (call.service.ready()) {
    call.exchange->respond({.body = R"({"ready":true})"});
    return;
  }
  std::string why = call.service.why_not_ready();
  refuse(call, {.code = service::Code::unavailable,
                .message = why.empty() ? "the server is not ready" : std::move(why)});
}

void get_metrics(const Call& call) {
  if (!call.options.metrics) {
    refuse(call, {.code = service::Code::not_found, .message = "this server has no metrics"});
    return;
  }
  call.exchange->respond(
      {.body = call.options.metrics(), .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

void get_openapi(const Call& call) { call.exchange->respond({.body = openapi_document()}); }

}  // namespace faultline::http
