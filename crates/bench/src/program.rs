//! The program `wirecost` that is measured.

use std::path::PathBuf;

/// Which one.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Program {
    /// Path of `wirecost` [default: next to this program].
    #[arg(long = "wirecost", value_name = "PATH")]
    path: Option<PathBuf>,
}

impl Program {
    pub(crate) fn at(path: &str) -> Self {
        Self { path: Some(PathBuf::from(path)) }
    }

    /// Its path.
    ///
    /// # Errors
    /// The file does not exist.
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        let path = match &self.path {
            Some(path) => path.clone(),
            None => std::env::current_exe()
                .map_err(|error| error.to_string())?
                .with_file_name("wirecost"),
        };
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("there is no {}: build it first, or name it", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_is_a_program() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wirecost");
        let program = Program { path: Some(path.clone()) };
        assert!(program.find().unwrap_err().contains(&path.display().to_string()));
        std::fs::write(&path, "").unwrap();
        assert_eq!(program.find().unwrap(), path);
    }
}
