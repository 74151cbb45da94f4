#pragma once

// Heavy headers: for transport.cc, tls.cc and http_server.cc only.

#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "http/transport.h"

namespace faultline::http {

[[nodiscard]] std::unique_ptr<Transport> plain_transport(boost::asio::ip::tcp::socket socket);
[[nodiscard]] std::unique_ptr<Transport> tls_transport(boost::asio::ip::tcp::socket socket,
                                                       std::shared_ptr<boost::asio::ssl::context> context);

}  // namespace faultline::http
