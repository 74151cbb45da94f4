#include "faultline/worker.h"
#include "remote/remote_link.h"

namespace faultline {

Worker Worker::connect(std::string server, WorkerOptions options) {
  return Worker{std::move(options), [server = std::move(server)](const WorkerOptions& with) {
                  return remote::open_remote_link({.server = server,
                                                   .worker = with.name,
                                                   .api_key = with.api_key,
                                                   .tls_ca = with.tls_ca,
                                                   .tls_cert = with.tls_cert,
                                                   .tls_key = with.tls_key});
                }};
}

}  // namespace faultline
