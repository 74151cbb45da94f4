#pragma once

#include <string_view>

namespace faultline::http {

/// The schemas that the router's table names, as the `components/schemas` of OpenAPI 3.1. Those that are
/// empty here come from the field tables.
inline constexpr std::string_view kSchemas = R"json({
  "Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
  "Ready": {"type": "object", "required": ["ready"], "properties": {"ready": {"const": true}}},
  "OpenApi": {"type": "object", "required": ["openapi", "info", "paths"]},
  "Time": {"type": "string", "format": "date-time", "description": "RFC 3339, the database's clock"},
  "Id": {"type": "string", "format": "uuid"},
  "Token": {"type": "integer", "format": "int64", "description": "Grows with every claim of the job"},
  "JobState": {},
  "Delivery": {},
  "Outcome": {},
  "Traceparent": {"type": "string", "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
    "description": "The trace that the job belongs to, as in W3C Trace Context"},
  "NewJob": {},
  "NewJobs": {"oneOf": [{"$ref": "#/components/schemas/NewJob"},
    {"type": "array", "items": {"$ref": "#/components/schemas/NewJob"}}]},
  "Submission": {"type": "object", "required": ["status", "job_id"], "properties": {
    "status": {"enum": ["created", "existing", "conflict"]},
    "job_id": {"$ref": "#/components/schemas/Id"}}},
  "Submissions": {"description": "Of a batch: one item per job, in order. Of a single job: the item itself. 201: there are new ones. 207: of some the key is another job's, and these were not added", "anyOf": [
    {"$ref": "#/components/schemas/Submission"},
    {"type": "object", "required": ["submissions"], "properties": {
      "submissions": {"type": "array", "items": {"$ref": "#/components/schemas/Submission"}}}}]},
  "JobSummary": {},
  "JobPage": {"type": "object", "required": ["jobs", "looked_at"],
    "description": "Where no index finds what is asked for, a page ends after some thousands of jobs that were looked at, and may be empty although there are more",
    "properties": {
    "jobs": {"type": "array", "items": {"$ref": "#/components/schemas/JobSummary"}},
    "next_cursor": {"type": "string", "description": "Not there: this is the last page"},
    "looked_at": {"type": "integer", "description": "How many jobs were looked at for this page"}}},
  "Job": {},
  "Attempt": {},
  "AttemptOutcome": {"enum": ["succeeded", "failed", "buried", "snoozed", "released", "expired", "cancelled", "requeued", "purged"],
    "description": "How an attempt, or an operator's act, ended"},
  "StaleReason": {},
  "StaleWrite": {},
  "StalePage": {"type": "object", "required": ["stale_writes"], "properties": {
    "stale_writes": {"type": "array", "items": {"$ref": "#/components/schemas/StaleWrite"}},
    "next_cursor": {"type": "string"}}},
  "EffectRecord": {},
  "EffectDecision": {},
  "JobHistory": {"type": "object", "required": ["job", "attempts", "stale_writes", "effects", "decisions"], "properties": {
    "job": {"$ref": "#/components/schemas/Job"},
    "attempts": {"type": "array", "items": {"$ref": "#/components/schemas/Attempt"}},
    "stale_writes": {"type": "array", "items": {"$ref": "#/components/schemas/StaleWrite"}},
    "effects": {"type": "array", "items": {"$ref": "#/components/schemas/EffectRecord"}},
    "decisions": {"type": "array", "items": {"$ref": "#/components/schemas/EffectDecision"},
      "description": "What people have said about effects that were begun and never recorded"}}},
  "JobFilter": {"type": "object", "additionalProperties": false, "properties": {
    "queue": {"type": "string"},
    "kind": {"type": "string"},
    "state": {"$ref": "#/components/schemas/JobState"}}},
  "CallId": {"type": "string", "format": "uuid",
    "description": "Names the call. Sent again with the same one it does nothing twice, and what it did before is answered the same; a filter selects again"},
  "CancelJob": {"type": "object", "additionalProperties": false, "properties": {
    "reason": {"type": "string"},
    "call_id": {"$ref": "#/components/schemas/CallId"}}},
  "ChangeJob": {"type": "object", "additionalProperties": false, "properties": {
    "call_id": {"$ref": "#/components/schemas/CallId"}}},
  "CancelJobs": {"type": "object", "additionalProperties": false,
    "description": "Either ids or a filter; dry_run goes with a filter and only counts", "properties": {
    "ids": {"type": "array", "items": {"$ref": "#/components/schemas/Id"}},
    "filter": {"$ref": "#/components/schemas/JobFilter"},
    "dry_run": {"type": "boolean", "default": false},
    "call_id": {"$ref": "#/components/schemas/CallId"},
    "reason": {"type": "string"}}},
  "RequeueJobs": {"type": "object", "additionalProperties": false,
    "description": "Either ids or a filter; dry_run goes with a filter and only counts", "properties": {
    "ids": {"type": "array", "items": {"$ref": "#/components/schemas/Id"}},
    "filter": {"$ref": "#/components/schemas/JobFilter"},
    "dry_run": {"type": "boolean", "default": false},
    "call_id": {"$ref": "#/components/schemas/CallId"}}},
  "PurgeJobs": {"type": "object", "additionalProperties": false,
    "description": "Either ids or a filter of dead jobs; dry_run goes with a filter and only counts", "properties": {
    "ids": {"type": "array", "items": {"$ref": "#/components/schemas/Id"}},
    "filter": {"$ref": "#/components/schemas/JobFilter"},
    "dry_run": {"type": "boolean", "default": false},
    "call_id": {"$ref": "#/components/schemas/CallId"}}},
  "DecideEffect": {"type": "object", "required": ["key", "happened", "reason"], "additionalProperties": false, "properties": {
    "key": {"type": "string", "description": "The effect's name within its job"},
    "happened": {"type": "boolean"},
    "result": {"description": "What it gave, if it happened: any JSON value, kept as the bytes that came; the next attempt gets it"},
    "result_base64": {"type": "string", "contentEncoding": "base64"},
    "reason": {"type": "string", "description": "How that is known, for the record"},
    "token": {"$ref": "#/components/schemas/Token",
      "description": "Under which it was begun, as the job's history has it: what was begun anew since is not meant. Not there: that of the effect on record now"}}},
  "DecidedEffect": {"type": "object", "required": ["job_id", "key", "status"], "properties": {
    "job_id": {"$ref": "#/components/schemas/Id"},
    "key": {"type": "string"},
    "status": {"enum": ["decided", "otherwise", "recorded", "changed", "running"],
      "description": "decided: on record, by this call or one that said the same. otherwise: it was decided before, and differently. recorded: its attempt has recorded what it gave. changed: it was begun anew since. running: an attempt is under way"}}},
  "DeletedQueue": {"type": "object", "required": ["status"], "properties": {"status": {"const": "deleted"}}},
  "ChangedItem": {"type": "object", "required": ["job_id", "status"], "properties": {
    "job_id": {"$ref": "#/components/schemas/Id"},
    "status": {"enum": ["cancelled", "requested", "finished", "requeued", "live", "purged", "not_dead", "not_found", "token_exhausted"]}}},
  "Changed": {"type": "object", "required": ["items", "matched", "changed"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/ChangedItem"}, "description": "By id, in order"},
    "matched": {"type": "integer", "description": "By filter"},
    "changed": {"type": "integer"}}},
  "QueueSettings": {},
  "Queue": {},
  "Queues": {"type": "object", "required": ["queues"], "properties": {
    "queues": {"type": "array", "items": {"$ref": "#/components/schemas/Queue"}}}},
  "Lease": {},
  "Leases": {"type": "object", "required": ["leases"], "additionalProperties": false, "properties": {
    "leases": {"type": "array", "items": {"$ref": "#/components/schemas/Lease"}}}},
  "Claim": {"type": "object", "required": ["worker"], "additionalProperties": false, "properties": {
    "queue": {"type": "string", "default": "default"},
    "worker": {"type": "string", "description": "A name for people; it need not be unique"},
    "limit": {"type": "integer", "minimum": 1, "default": 1},
    "wait_ms": {"type": "integer", "minimum": 0, "maximum": 30000, "default": 0,
      "description": "How long to wait for a first job; the look itself may take up to 200 ms"}}},
  "ClaimedJob": {},
  "ClaimedJobs": {"type": "object", "required": ["jobs"], "properties": {
    "jobs": {"type": "array", "items": {"$ref": "#/components/schemas/ClaimedJob"}}}},
  "Stale": {},
  "Heartbeat": {"type": "object", "required": ["leases"], "additionalProperties": false, "properties": {
    "leases": {"type": "array", "items": {"$ref": "#/components/schemas/Lease"}},
    "extend_ms": {"type": "integer", "description": "Instead of each job's TTL; a renewal never shortens a lease"}}},
  "Beat": {"type": "object", "required": ["status"], "properties": {
    "status": {"enum": ["renewed", "cancel_requested", "lost", "unknown"]},
    "lease_expires_at": {"$ref": "#/components/schemas/Time"},
    "cancel_reason": {"type": "string"},
    "stale": {"$ref": "#/components/schemas/Stale"}}},
  "Beats": {"type": "object", "required": ["beats"], "properties": {
    "beats": {"type": "array", "items": {"$ref": "#/components/schemas/Beat"}}}},
  "Result": {"type": "object", "required": ["lease", "outcome"], "additionalProperties": false, "properties": {
    "lease": {"$ref": "#/components/schemas/Lease"},
    "outcome": {"$ref": "#/components/schemas/Outcome"},
    "result": {"description": "Of a success: any JSON value, kept as the bytes that came"},
    "result_base64": {"type": "string", "contentEncoding": "base64"},
    "error": {"type": "string", "description": "Of a failure, burial or cancellation"},
    "delay_ms": {"type": "integer", "description": "Of a snooze, or of a failure instead of the backoff"}}},
  "Settle": {"type": "object", "required": ["results"], "additionalProperties": false, "properties": {
    "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}}}},
  "Verdict": {"type": "object", "required": ["status", "job_id", "token"], "properties": {
    "status": {"enum": ["committed", "stale", "unknown"]},
    "job_id": {"$ref": "#/components/schemas/Id"},
    "token": {"$ref": "#/components/schemas/Token"},
    "repeated": {"const": true, "description": "Committed by an earlier sending of the same result, not by this one"},
    "stale": {"$ref": "#/components/schemas/Stale"}}},
  "Verdicts": {"type": "object", "required": ["verdicts"], "properties": {
    "verdicts": {"type": "array", "items": {"$ref": "#/components/schemas/Verdict"}}}},
  "ProgressReports": {"type": "object", "required": ["reports"], "additionalProperties": false, "properties": {
    "reports": {"type": "array", "items": {"type": "object", "required": ["lease", "fraction"],
      "additionalProperties": false, "properties": {
      "lease": {"$ref": "#/components/schemas/Lease"},
      "fraction": {"type": "number", "minimum": 0, "maximum": 1},
      "note": {"type": "string"}}}}}},
  "Resolved": {"type": "object", "required": ["resolved"], "properties": {
    "resolved": {"type": "array", "items": {"type": "object", "required": ["committed"], "properties": {
      "committed": {"type": "boolean"},
      "outcome": {"$ref": "#/components/schemas/Outcome"}}}}}},
  "EffectKey": {"type": "object", "required": ["lease", "key"], "additionalProperties": false, "properties": {
    "lease": {"$ref": "#/components/schemas/Lease"},
    "key": {"type": "string"},
    "call_id": {"type": "string", "format": "uuid",
      "description": "Names the call that announces: sent again with the same one, it is told the same. Taking back names the call that announced; without one, whatever was announced under the lease is meant"}}},
  "EffectKeys": {"type": "object", "required": ["keys"], "additionalProperties": false, "properties": {
    "keys": {"type": "array", "items": {"$ref": "#/components/schemas/EffectKey"}}}},
  "EffectResults": {"type": "object", "required": ["results"], "additionalProperties": false, "properties": {
    "results": {"type": "array", "items": {"type": "object", "required": ["lease", "key"],
      "additionalProperties": false, "properties": {
      "lease": {"$ref": "#/components/schemas/Lease"},
      "key": {"type": "string"},
      "result": {},
      "result_base64": {"type": "string", "contentEncoding": "base64"}}}}}},
  "Effect": {"type": "object", "required": ["status"], "properties": {
    "status": {"enum": ["begun", "recorded", "unknown", "stale"]},
    "result": {},
    "result_base64": {"type": "string", "contentEncoding": "base64"},
    "begun_under": {"$ref": "#/components/schemas/Token"},
    "stale": {"$ref": "#/components/schemas/Stale"}}},
  "Effects": {"type": "object", "required": ["effects"], "properties": {
    "effects": {"type": "array", "items": {"$ref": "#/components/schemas/Effect"}}}},
  "Problem": {"type": "object", "description": "RFC 9457. `code` is stable; `detail` and `hint` are for people",
    "required": ["type", "title", "status", "detail", "code"], "properties": {
    "type": {"type": "string"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "code": {"enum": ["malformed", "invalid", "too_large", "unauthenticated", "forbidden", "not_found", "conflict",
      "stale", "overloaded", "unavailable", "outcome_unknown", "internal"]},
    "hint": {"type": "string"},
    "job_id": {"$ref": "#/components/schemas/Id", "description": "Of a conflict: the job that has the key, or that could not be changed"},
    "state": {"$ref": "#/components/schemas/JobState", "description": "Of a job that could not be changed"},
    "retry_after_ms": {"type": "integer"},
    "reason": {"$ref": "#/components/schemas/StaleReason"},
    "token": {"$ref": "#/components/schemas/Token"},
    "current_token": {"$ref": "#/components/schemas/Token"},
    "verdicts": {"type": "array", "items": {"$ref": "#/components/schemas/Verdict"}}}}
})json";

}  // namespace faultline::http
