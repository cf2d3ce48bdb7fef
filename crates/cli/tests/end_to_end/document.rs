//! The JSON of a command, checked against its published schema.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static RUN: LazyLock<Validator> =
    LazyLock::new(|| validator(include_str!("../../../../docs/schema/wirecost.run-1.json")));
static OBSERVE: LazyLock<Validator> =
    LazyLock::new(|| validator(include_str!("../../../../docs/schema/wirecost.observe-1.json")));

pub(crate) fn validator(text: &str) -> Validator {
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is one")
}

/// A document that its schema has accepted.
#[derive(Debug, Clone)]
pub(crate) struct Document(Value);

impl Document {
    pub(crate) fn valid(value: Value) -> Self {
        let schema = if value["schema"] == "wirecost.observe/1" { &OBSERVE } else { &RUN };
        let errors: Vec<String> = schema
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        let document = Self(value);
        assert!(errors.is_empty(), "{errors:#?}\n{}", document.reasons());
        document
    }

    /// What the run itself says of how it went, for a test that fails.
    fn reasons(&self) -> String {
        let at = |path| self.0.pointer(path).unwrap_or(&Value::Null);
        let warnings = at("/warnings").as_array().into_iter().flatten();
        let messages: Vec<String> =
            warnings.map(|w| format!("\n  {}: {}", w["code"], w["message"])).collect();
        let (status, error) = (at("/status"), at("/error"));
        format!("status {status}, error {error}, warnings:{}", messages.concat())
    }

    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    pub(crate) fn at(&self, path: &str) -> &Value {
        self.0
            .pointer(path)
            .unwrap_or_else(|| panic!("there is no {path} in {:#}\n{}", self.0, self.reasons()))
    }

    #[track_caller]
    fn is_not(&self, path: &str) -> ! {
        panic!("{path} is {}\n{}", self.at(path), self.reasons())
    }

    pub(crate) fn is_null(&self, path: &str) -> bool {
        self.at(path).is_null()
    }

    pub(crate) fn number(&self, path: &str) -> f64 {
        self.at(path).as_f64().unwrap_or_else(|| self.is_not(path))
    }

    pub(crate) fn count(&self, path: &str) -> u64 {
        self.at(path).as_u64().unwrap_or_else(|| self.is_not(path))
    }

    /// Empty for null.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    pub(crate) fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().unwrap_or_else(|| self.is_not(path))
    }

    /// Sum of a member over a list.
    pub(crate) fn sum(&self, path: &str, member: &str) -> f64 {
        let number = |row: &Value| {
            row[member].as_f64().unwrap_or_else(|| {
                panic!("{member} of {path} is {}\n{}", row[member], self.reasons())
            })
        };
        self.list(path).iter().map(number).sum()
    }

    /// Seconds by which an edge of a window may have been off, as the document itself warns; what is less
    /// than 10 ms it does not tell.
    pub(crate) fn skew(&self) -> f64 {
        let warnings = self.list("/warnings").iter().filter(|w| w["code"] == "window-skew");
        let told = warnings.map(|warning| {
            let message = warning["message"].as_str().expect("a message");
            let (_, rest) = message.split_once("was off by ").expect("by how much");
            let (number, _) = rest.split_once(" ms").expect("milliseconds");
            number.parse::<f64>().expect("a number") / 1e3
        });
        told.fold(0.010, f64::max)
    }

    /// The window is as long as it was asked to be, but for what the document warns of.
    #[track_caller]
    pub(crate) fn lasts(&self, asked: f64) {
        let (seconds, skew) = (self.number("/window/seconds"), self.skew());
        assert!(
            (seconds - asked).abs() <= 2.0 * skew,
            "{seconds} s for {asked}, {skew} s off\n{}",
            self.reasons()
        );
    }

    /// What the document says that disturbed its run.
    pub(crate) fn disturbances(&self) -> Vec<String> {
        [self.disturbances_of_outage(), self.messages(&["dead-time"])].concat()
    }

    /// The same of a run in which traffic is meant to stand still for a time.
    pub(crate) fn disturbances_of_outage(&self) -> Vec<String> {
        self.messages(&["steal", "foreign-cpu", "window-skew", "lost-intervals", "link-late"])
    }

    /// What warnings of these codes say.
    fn messages(&self, codes: &[&str]) -> Vec<String> {
        let warnings = self.list("/warnings").iter();
        let of_codes = warnings.filter(|warning| codes.iter().any(|code| warning["code"] == *code));
        of_codes.filter_map(|warning| warning["message"].as_str()).map(str::to_owned).collect()
    }

    /// What a warning says.
    #[track_caller]
    pub(crate) fn warning(&self, code: &str) -> &str {
        let found = self.list("/warnings").iter().find(|warning| warning["code"] == code);
        let message = found.and_then(|warning| warning["message"].as_str());
        message.unwrap_or_else(|| panic!("there is no warning {code}\n{}", self.reasons()))
    }

    pub(crate) fn has_warning(&self, code: &str) -> bool {
        self.list("/warnings").iter().any(|warning| warning["code"] == code)
    }
}
