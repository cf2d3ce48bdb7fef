//! Whether a document and its published schema say the same.

use std::collections::BTreeSet;

use serde_json::Value;

/// A document in which everything is filled has the keys of its schema, no more and no less.
pub fn assert_none(document: &Value, schema: &Value) -> BTreeSet<String> {
    let (mut written, mut published) = (BTreeSet::new(), BTreeSet::new());
    keys(document, "", &mut written);
    schema_keys(schema, schema, "", &mut published);
    let only = |a: &BTreeSet<String>, b| a.difference(b).cloned().collect::<Vec<_>>();
    assert_eq!(only(&written, &published), Vec::<String>::new(), "not published");
    assert_eq!(only(&published, &written), Vec::<String>::new(), "never written");
    written
}

/// A key is never absent.
pub fn assert_required(root: &Value) {
    let definitions = root["$defs"].as_object().into_iter().flat_map(|all| all.values());
    for object in definitions.chain([root]) {
        let names = |value: &Value| -> BTreeSet<String> {
            match value {
                Value::Object(object) => object.keys().cloned().collect(),
                Value::Array(list) => {
                    list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
                }
                _ => BTreeSet::new(),
            }
        };
        assert_eq!(names(&object["properties"]), names(&object["required"]));
    }
}

/// Paths of all keys, with `[]` for any element of a list.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = format!("{path}/{key}");
                keys(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(list) => {
            for value in list {
                keys(value, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

/// The same of a schema.
fn schema_keys(root: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#'));
        assert!(target.is_some(), "{reference} is nowhere");
        schema_keys(root, target.unwrap_or(&Value::Null), path, found);
    }
    for part in schema["anyOf"].as_array().into_iter().flatten() {
        schema_keys(root, part, path, found);
    }
    for (key, part) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        schema_keys(root, part, &path, found);
        found.insert(path);
    }
    if schema.get("items").is_some() {
        schema_keys(root, &schema["items"], &format!("{path}[]"), found);
    }
}
