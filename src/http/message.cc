#include "http/message.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>

namespace faultline::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// `gzip;q=0` refuses it.
bool has_zero_weight(std::string_view parameters) {
  const std::size_t at = parameters.find("q=");
  if (at == std::string_view::npos) return false;
  const std::string_view weight = trim(parameters.substr(at + 2));
  return weight.find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view Request::header(std::string_view name) const { return find_header(name).value_or(""); }

std::optional<std::string_view> Request::find_header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return std::nullopt;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 207:
      return "Multi-Status";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string compose_head(const Response& response, const Framing& framing) {
  std::string head;
  head.reserve(256 + framing.extra.size());
  head += "HTTP/1.1 ";
  head += std::to_string(response.status);
  head += ' ';
  head += reason_of(response.status);
  if (!response.content_type.empty()) {
    head += "\r\nContent-Type: ";
    head += response.content_type;
    if (framing.with_length) {
      head += "\r\nContent-Length: ";
      head += std::to_string(response.body.size());
    }
  }
  head += framing.keep_alive ? "\r\n" : "\r\nConnection: close\r\n";
  for (const auto& [name, value] : response.headers) {
    head += name;
    head += ": ";
    head += value;
    head += "\r\n";
  }
  head += framing.extra;
  head += "\r\n";
  return head;
}

bool may_come_from(std::string_view origin, std::string_view allowed) {
  return !origin.empty() && !allowed.empty() && (allowed == "*" || origin == allowed);
}

std::string_view media_type(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (content_type.ends_with(' ')) content_type.remove_suffix(1);
  return content_type;
}

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    const std::size_t comma = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view item = accept_encoding.substr(0, comma);
    const std::size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view coding = trim(item.substr(0, semicolon));
    if (equal_ignoring_case(coding, "gzip") || coding == "*") return !has_zero_weight(item.substr(semicolon));
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
  }
  return false;
}

std::string gzip(std::string_view bytes) {
  constexpr int kGzipFormat = 15 + 16;  // the largest window, with gzip's header and trailer
  constexpr int kMemoryLevel = 8;       // zlib's default
  constexpr int kLevel = 3;             // most of the gain for little of the time
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipFormat, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not write to it
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool complete = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(complete ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

}  // namespace faultline::http
