//! Empty programs in hooks of the kernel: most of what observing costs is the hook and not what runs
//! in it, and a benchmark has to tell the two apart.

use crate::bpf::{BpfError, LoadedObject, Options, compiled};

/// Empty programs, loaded for some tracepoints.
#[derive(Debug)]
pub struct EmptyHooks(Vec<LoadedObject>);

impl EmptyHooks {
    /// Loads one for each tracepoint, by its name.
    ///
    /// # Errors
    /// Where the kernel does not have or allow one.
    pub fn open(tracepoints: &[String]) -> Result<Self, BpfError> {
        let load = |tracepoint: &String| {
            let options = Options { target: Some(tracepoint.as_str()), ..Options::default() };
            LoadedObject::load(compiled!("empty", "empty_empty"), &options)
        };
        Ok(Self(tracepoints.iter().map(load).collect::<Result<_, _>>()?))
    }

    /// Puts them in place.
    ///
    /// # Errors
    /// The first that was refused.
    pub fn attach(&mut self) -> Result<(), BpfError> {
        self.0.iter_mut().try_for_each(LoadedObject::attach)
    }

    pub fn detach(&mut self) {
        self.0.iter_mut().for_each(LoadedObject::detach);
    }
}
