//! Whatever a study file says: it is refused with a reason, or it has points, and is the same when it is
//! written and read again.

use wirecost_study::{Definition, Matrix, check};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Definition::parse(&text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(study) => {
            let printed = study.to_text();
            let again = Definition::parse(&printed);
            let again = again.unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(again.to_text(), printed);
            let _ = check(&study);
            match Matrix::of(&study) {
                Ok(matrix) => assert!(matrix.points.len() <= 1 << 20),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            let _ = Matrix::of(&study.with_quick_overrides());
        }
    }
}
