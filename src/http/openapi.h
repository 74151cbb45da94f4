#pragma once

#include <string>

namespace faultline::http {

/// The OpenAPI 3.1 document of this server, made from the router's table and the schemas.
[[nodiscard]] const std::string& openapi_document();

}  // namespace faultline::http
