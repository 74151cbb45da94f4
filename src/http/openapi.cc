#include "http/openapi.h"

#include <nlohmann/json.hpp>

#include "codec/schema.h"
#include "http/router.h"
#include "http/schemas.h"

namespace faultline::http {
namespace {

using Tree = nlohmann::ordered_json;

Tree reference(std::string_view schema) { return {{"$ref", "#/components/schemas/" + std::string{schema}}}; }

Tree content(std::string_view media_type, Tree schema) {
  return {{std::string{media_type}, {{"schema", std::move(schema)}}}};
}

Tree parameter(std::string_view name, std::string_view where) {
  Tree schema{{"type", "string"}};
  if (name == "limit") schema = {{"type", "integer"}, {"minimum", 1}, {"maximum", 1'000}, {"default", 50}};
  if (name == "state") schema = reference("JobState");
  if (name == "id") schema = reference("Id");
  return {{"name", name}, {"in", where}, {"required", where == "path"}, {"schema", std::move(schema)}};
}

Tree parameters_of(const Route& route) {
  Tree parameters = Tree::array();
  for (std::string_view rest = route.pattern; rest.find('{') != std::string_view::npos;) {
    rest.remove_prefix(rest.find('{') + 1);
    parameters.push_back(parameter(rest.substr(0, rest.find('}')), "path"));
  }
  for (std::string_view rest = route.query; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    parameters.push_back(parameter(rest.substr(0, end), "query"));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (route.operation == service::Operation::enqueue) {
    parameters.push_back(parameter("Idempotency-Key", "header"));
    parameters.push_back(parameter("traceparent", "header"));
  }
  return parameters;
}

Tree request_body(const Route& route) {
  Tree media = content("application/json", reference(route.request));
  if (route.ndjson) media["application/x-ndjson"] = {{"schema", {{"type", "string"}}}};
  return {{"content", std::move(media)}};
}

Tree answers_of(const Route& route) {
  Tree good{{"description", "Done"}};
  if (!route.response.empty()) {
    good["content"] = content("application/json", reference(route.response));
  } else {
    const bool events = route.operation == service::Operation::watch_events;
    good["content"] = content(events ? "text/event-stream" : "text/plain", {{"type", "string"}});
  }
  Tree answers{{"200", good}};
  if (route.operation == service::Operation::enqueue) {
    good["description"] = "New";
    answers["201"] = good;
    good["description"] = "Some of a batch were not added";
    answers["207"] = good;
  }
  answers["default"] = {{"description", "Not done"},
                        {"content", content("application/problem+json", reference("Problem"))}};
  return answers;
}

std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// `get_v1_jobs_id`.
std::string operation_id(const Route& route) {
  std::string id = lower(route.method);
  for (const char c : route.pattern) {
    if (c == '/' || c == '.') id += '_';
    if (c != '/' && c != '.' && c != '{' && c != '}') id += c;
  }
  return id;
}

Tree operation_of(const Route& route) {
  Tree operation{{"operationId", operation_id(route)}, {"summary", route.summary}};
  if (Tree parameters = parameters_of(route); !parameters.empty())
    operation["parameters"] = std::move(parameters);
  if (!route.request.empty()) operation["requestBody"] = request_body(route);
  operation["responses"] = answers_of(route);
  if (route.operation) {
    operation["security"] = {{{"key", Tree::array()}}, Tree::object()};
    operation["x-scope"] = to_string(scope_of(*route.operation));
  }
  return operation;
}

Tree schemas() {
  Tree all = Tree::parse(kSchemas);
  for (const auto& [name, schema] : codec::struct_schemas()) all.at(name) = Tree::parse(schema);
  return all;
}

std::string make_document() {
  Tree paths = Tree::object();
  for (const Route& route : routes())
    paths[std::string{route.pattern}][lower(route.method)] = operation_of(route);
  const Tree document{{"openapi", "3.1.0"},
                      {"info",
                       {{"title", "Faultline"},
                        {"version", "1"},
                        {"summary", "A crash-safe distributed job queue on PostgreSQL"},
                        {"description",
                         "Every write of a worker carries its lease. A write whose lease is no longer the "
                         "job's current one changes "
                         "nothing, is answered as stale with the reason, and leaves evidence. Fields that "
                         "are not known are refused. "
                         "What has no value is left out of answers."}}},
                      {"paths", std::move(paths)},
                      {"components",
                       {{"schemas", schemas()},
                        {"securitySchemes",
                         {{"key",
                           {{"type", "http"},
                            {"scheme", "bearer"},
                            {"description", "An API key, if the server asks for one"}}}}}}}};
  return document.dump();
}

}  // namespace

const std::string& openapi_document() {
  static const std::string kDocument = make_document();
  return kDocument;
}

}  // namespace faultline::http
