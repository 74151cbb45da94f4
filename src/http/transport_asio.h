#pragma once

// Heavy headers: for transport.cc and http_server.cc only.

#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <openssl/types.h>

#include "http/transport.h"

namespace faultline::http {

[[nodiscard]] std::unique_ptr<Transport> plain_transport(boost::asio::ip::tcp::socket socket);
[[nodiscard]] std::unique_ptr<Transport> tls_transport(boost::asio::ip::tcp::socket socket, SSL_CTX* context);

}  // namespace faultline::http
