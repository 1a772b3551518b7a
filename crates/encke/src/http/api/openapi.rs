//! The OpenAPI 3.1 document of the HTTP API, made from the table of operations and the types.

use std::sync::Arc;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::problem::Details;
use super::routes::{self, ROOT, Route};
use crate::added_operation::ApiOperation;

/// The document as JSON, with the operations that the program has added.
pub(super) fn text(added: &[Arc<ApiOperation>]) -> String {
    format!("{:#}\n", document(added))
}

fn document(added: &[Arc<ApiOperation>]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Details<'_>>().to_value();
    let mut paths = Map::new();
    for route in routes::all(added) {
        let path = paths.entry(format!("{ROOT}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(&route, &mut generator, &problem);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Encke HTTP API",
            "version": "1",
            "description": "Publish to Bayeux clients, deliver to sessions, list and manage them. Errors are problem details (RFC 9457).",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "An API key: Authorization: Bearer KEY" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key: X-API-Key: KEY" },
            },
        },
        "security": [{ "bearer": [] }, { "key": [] }],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for parameter in route.parameters {
        parameters.push(json!({
            "name": parameter.name,
            "in": if parameter.is_in_path { "path" } else { "query" },
            "required": parameter.is_required,
            "description": parameter.description,
            "schema": (parameter.schema)(generator).to_value(),
        }));
    }
    let publishes = route.errors.contains(&422);
    if publishes {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "A key of this request. A repeated request with the same key gets the first answer and publishes nothing.",
            "schema": { "type": "string", "pattern": "^[!-~]{1,255}$" },
        }));
    }
    let answer = (route.answer)(generator).to_value();
    let mut responses = Map::new();
    let ok = json!({ "description": "Done.", "content": { "application/json": { "schema": answer } } });
    responses.insert("200".into(), ok);
    let of_bodies: &[u16] = if route.body.is_some() { &[408, 413, 415] } else { &[] };
    for status in [400, 401, 403, 503].iter().chain(of_bodies).chain(route.errors) {
        let name = http::StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
        let response = json!({
            "description": name.unwrap_or_default(),
            "content": { "application/problem+json": { "schema": problem } },
        });
        responses.insert(status.to_string(), response);
    }
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "description": format!("{} Needs the scope `{}`.", route.description, route.scope.name()),
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = route.body {
        let schema = body(generator).to_value();
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_in_the_document_leads_to_a_schema() {
        let document = document(&[]);
        let text = document.to_string();
        let mut references = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next());
        assert!(references.clone().count() > 10);
        assert!(references.all(|pointer| document.pointer(pointer).is_some()), "{text}");
    }
}
