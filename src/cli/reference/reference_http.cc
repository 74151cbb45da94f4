#include "cli/reference/reference.h"
#include "http/openapi.h"

namespace faultline::cli {
namespace {

using Tree = nlohmann::ordered_json;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return text;
}

/// "#/components/schemas/Job" as a link to the heading of that name.
std::string schema_link(const std::string& reference) {
  const std::string name = reference.substr(reference.rfind('/') + 1);
  return "[" + name + "](#" + lower(name) + ")";
}

std::string list_of(const Tree& values) {
  std::string text;
  for (const Tree& value : values)
    text +=
        (text.empty() ? "`" : ", `") + (value.is_string() ? value.get<std::string>() : value.dump()) + "`";
  return text;
}

std::string type_of(const Tree& schema);

std::string alternatives(const Tree& schemas) {
  std::string text;
  for (const Tree& schema : schemas) text += (text.empty() ? "" : ", or ") + type_of(schema);
  return text;
}

/// A schema in a few words: `string`, a link, an array of one, one of some values.
std::string type_of(const Tree& schema) {
  if (schema.contains("$ref")) return schema_link(schema.at("$ref"));
  if (schema.contains("enum")) return list_of(schema.at("enum"));
  if (schema.contains("const")) return "`" + schema.at("const").dump() + "`";
  if (schema.contains("oneOf")) return alternatives(schema.at("oneOf"));
  if (schema.contains("anyOf")) return alternatives(schema.at("anyOf"));
  if (!schema.contains("type")) return "any JSON value";
  if (schema.at("type").is_array()) {
    std::string text;
    for (const Tree& type : schema.at("type")) text += (text.empty() ? "" : " or ") + type.get<std::string>();
    return text;
  }
  const std::string type = schema.at("type");
  if (type == "array") return "array of " + type_of(schema.at("items"));
  if (type != "object" || !schema.contains("properties"))
    return type + (schema.contains("format") ? " (" + schema.at("format").get<std::string>() + ")" : "");
  std::string fields;
  for (const auto& [name, field] : schema.at("properties").items())
    fields += (fields.empty() ? "`" : ", `") + name + "` " + type_of(field);
  return "object with " + fields;
}

std::string description_of(const Tree& schema) {
  if (!schema.contains("description")) return "";
  const std::string text = schema.at("description");
  return table_cell(text) + (text.ends_with('.') ? "" : ".");
}

/// All that there is to say of a field, in short sentences.
std::string notes_of(const Tree& schema, bool required) {
  std::vector<std::string> notes;
  if (required) notes.emplace_back("Required.");
  if (schema.contains("description")) notes.push_back(description_of(schema));
  if (schema.contains("minimum")) notes.push_back("From " + schema.at("minimum").dump() + ".");
  if (schema.contains("maximum")) notes.push_back("Up to " + schema.at("maximum").dump() + ".");
  if (schema.contains("maxItems")) notes.push_back("At most " + schema.at("maxItems").dump() + ".");
  if (schema.contains("default")) notes.push_back("Default: `" + schema.at("default").dump() + "`.");
  if (schema.contains("contentEncoding"))
    notes.push_back("Encoded as " + schema.at("contentEncoding").get<std::string>() + ".");
  std::string text;
  for (const std::string& note : notes) text += (text.empty() ? "" : " ") + note;
  return text;
}

bool is_required(const Tree& schema, const std::string& field) {
  if (!schema.contains("required")) return false;
  const Tree& required = schema.at("required");
  return std::ranges::find(required, Tree(field)) != required.end();
}

std::string schema_section(const std::string& name, const Tree& schema) {
  std::string text = "\n### " + name + "\n\n";
  if (const std::string about = description_of(schema); !about.empty()) text += about + "\n\n";
  if (!schema.contains("properties")) return text + "A JSON value: " + type_of(schema) + ".\n";
  text += "| field | type | |\n| --- | --- | --- |\n";
  for (const auto& [field, type] : schema.at("properties").items()) {
    text +=
        "| `" + field + "` | " + type_of(type) + " | " + notes_of(type, is_required(schema, field)) + " |\n";
  }
  return text;
}

std::string parameters_section(const Tree& operation) {
  if (!operation.contains("parameters")) return "";
  std::string text;
  for (const Tree& parameter : operation.at("parameters")) {
    text += (text.empty() ? "" : ", ") + std::string{"`"} + parameter.at("name").get<std::string>() + "` (" +
            parameter.at("in").get<std::string>() + ", " + type_of(parameter.at("schema")) + ")";
  }
  return "- Parameters: " + text + ".\n";
}

std::string media(const Tree& content) {
  std::string text;
  for (const auto& [type, body] : content.items())
    text += (text.empty() ? "" : "; ") + std::string{"`"} + type + "`: " + type_of(body.at("schema"));
  return text;
}

std::string operation_section(const std::string& method, const std::string& path, const Tree& operation) {
  std::string text =
      "\n### " + method + " " + path + "\n\n" + operation.at("summary").get<std::string>() + ".\n\n";
  text += operation.contains("x-scope")
              ? "- Scope of its key: `" + operation.at("x-scope").get<std::string>() + "`.\n"
              : "- Open to everybody.\n";
  text += parameters_section(operation);
  if (operation.contains("requestBody"))
    text += "- Body: " + media(operation.at("requestBody").at("content")) + ".\n";
  for (const auto& [status, answer] : operation.at("responses").items()) {
    if (status != "default") text += "- Answer " + status + ": " + media(answer.at("content")) + ".\n";
  }
  return text;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return text;
}

}  // namespace

std::string http_reference() {
  const Tree document = Tree::parse(http::openapi_document());
  std::string page =
      generated_note("the OpenAPI document that a server gives at `/openapi.json`") + "# HTTP\n\n" +
      document.at("info").at("description").get<std::string>() +
      "\n\nWith keys, a request carries `Authorization: Bearer KEY`. What is not done is answered as "
      "[Problem](#problem), of the type\n`application/problem+json`. "
      "[docs/server.md](../server.md) is the guide.\n"
      "What is required of a body is always there in an answer.\n\n## Addresses\n";
  for (const auto& [path, operations] : document.at("paths").items()) {
    for (const auto& [method, operation] : operations.items())
      page += operation_section(upper(method), path, operation);
  }
  page += "\n## Schemas\n";
  for (const auto& [name, schema] : document.at("components").at("schemas").items())
    page += schema_section(name, schema);
  return page;
}

}  // namespace faultline::cli
